import { appendFile, mkdir, open, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';

import type { Meta } from './contract.js';

/** Output is what the job keeps. The counts themselves stay in their file: a workflow's history is no place for them. */
export interface Output {
  /** The result's path relative to the results' folder, with forward slashes. */
  file: string;
  words: number;
  distinct: number;
}

/** Result is a job's file. Its appearance is the moment of delivery. */
interface Result {
  idempotencyKey: string;
  output: Output;
  counts: Record<string, number>;
}

/** A marker that was not refreshed for so long is that of a worker that died. */
const staleMs = 10_000;
const refreshMs = 1_000;

/** Store keeps results by job in a folder that several workers may share. */
export class Store {
  constructor(private readonly folder: string) {}

  /** has says whether a file of that name is in the folder. */
  async has(name: string): Promise<boolean> {
    return (await absentAsNull(stat(join(this.folder, name)))) !== null;
  }

  /** find gives the job's result, whatever attempt made it. */
  async find(meta: Meta): Promise<Result | null> {
    const text = await absentAsNull(readFile(this.path(meta, '.json'), 'utf8'));
    return text === null ? null : (JSON.parse(text) as Result);
  }

  /** keep writes the result whole or not at all, and on disk once it returns. */
  async keep(meta: Meta, counts: Map<string, number>): Promise<Output> {
    let words = 0;
    for (const count of counts.values()) words += count;
    const output = { file: relativePath(meta, '.json'), words, distinct: counts.size };
    const sorted = Object.fromEntries([...counts].sort(([a], [b]) => (a < b ? -1 : 1)));
    const result: Result = { idempotencyKey: meta.idempotencyKey, output, counts: sorted };
    await writeAtomically(this.path(meta, '.json'), JSON.stringify(result));
    return output;
  }

  /** log adds a line to runs.log: how often work really ran shows there. */
  async log(meta: Meta, event: string): Promise<void> {
    const line = JSON.stringify({ time: new Date(), ...meta, event });
    await appendFile(join(this.folder, 'runs.log'), line + '\n');
  }

  /** mark returns what to call with each progress, so that the probe finds the job running. */
  async mark(meta: Meta): Promise<() => Promise<void>> {
    const path = this.path(meta, '.running');
    await mkdir(dirname(path), { recursive: true });
    let refreshed = 0;
    return async () => {
      if (Date.now() - refreshed < refreshMs) return;
      await writeFile(path, JSON.stringify(meta));
      refreshed = Date.now();
    };
  }

  async unmark(meta: Meta): Promise<void> {
    await rm(this.path(meta, '.running'), { force: true });
  }

  async isMarked(meta: Meta): Promise<boolean> {
    const marker = await absentAsNull(stat(this.path(meta, '.running')));
    return marker !== null && Date.now() - marker.mtimeMs < staleMs;
  }

  private path(meta: Meta, extension: string): string {
    return join(this.folder, ...relativePath(meta, extension).split('/'));
  }
}

function relativePath(meta: Meta, extension: string): string {
  return `${escapeId(meta.tenant)}/${escapeId(meta.jobId)}${extension}`;
}

/** escapeId makes a name that is no special folder and differs from every other also where case is ignored. */
function escapeId(id: string): string {
  return id.replace(/[A-Z.:]/g, (c) => (c === '.' ? '=0' : c === ':' ? '=1' : '=' + c.toLowerCase()));
}

async function writeAtomically(path: string, text: string): Promise<void> {
  const unfinished = `${path}.${process.pid}-${crypto.randomUUID()}`;
  try {
    await writeFile(unfinished, text, { flush: true });
    await rename(unfinished, path);
  } finally {
    await rm(unfinished, { force: true });
  }
  // The rename survives a power cut only once the folder is on disk as well.
  const folder = await open(dirname(path));
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

async function absentAsNull<T>(wanted: Promise<T>): Promise<T | null> {
  try {
    return await wanted;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}
