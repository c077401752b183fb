import { ApplicationFailure, heartbeat, sleep } from '@temporalio/activity';

import { badInput, checkInput, checkMeta, type ProbeAnswer } from './contract.js';
import type { Output, Store } from './store.js';

/** How often slow work looks up: a cancel is noticed, and a heartbeat given, at least so often. */
const tickMs = 200;
/** Into how many steps a text is divided. */
const steps = 100;

/** The names are the job's work.activity and work.probe. */
export function activitiesOn(store: Store) {
  return {
    /** CountWords is the metered work. Returning delivers the job; an error says that this attempt did not. */
    async CountWords(given: unknown, identity: unknown): Promise<Output> {
      const meta = checkMeta(identity);
      const input = checkInput(given);
      if (input.neverSucceeds) throw badInput('neverSucceeds is set: this text cannot be counted');
      // Before anything that may fail: what has been delivered stays delivered.
      const earlier = await store.find(meta);
      if (earlier?.idempotencyKey === meta.idempotencyKey) return earlier.output;
      if (input.failWhile !== '' && (await store.has(input.failWhile))) {
        throw ApplicationFailure.retryable(`counting is down while the file ${input.failWhile} exists`, 'CountingDown');
      }
      if (meta.attempt <= input.failAttempts) {
        throw ApplicationFailure.retryable(`attempt ${meta.attempt} fails as asked`, 'CountingFailed');
      }

      const mark = await store.mark(meta);
      try {
        await mark();
        await store.log(meta, 'started');
        return await store.keep(meta, await count(input.text, input.slowMs, mark));
      } finally {
        await store.unmark(meta);
      }
    },

    /** ProbeWords says what became of a job by looking where results are kept. */
    async ProbeWords(identity: unknown): Promise<ProbeAnswer<Output>> {
      const meta = checkMeta(identity);
      // The marker first: it goes after the result has come, so that a job which ends in between is not seen as unknown.
      const running = await store.isMarked(meta);
      const result = await store.find(meta);
      if (result !== null) return { state: 'succeeded', output: result.output };
      return { state: running ? 'running' : 'unknown' };
    },
  };
}

/** count counts the words, which are the same whatever their case, no faster than slowMs asks. */
async function count(text: string, slowMs: number, mark: () => Promise<void>): Promise<Map<string, number>> {
  const counts = new Map<string, number>();
  const words = text.normalize('NFC').toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
  const began = Date.now();
  for (let step = 1; step <= steps; step++) {
    for (const word of words.slice(portion(step - 1), portion(step))) counts.set(word, (counts.get(word) ?? 0) + 1);
    const due = began + (slowMs * step) / steps;
    do {
      heartbeat({ words: portion(step), of: words.length });
      await mark();
      // It throws when the job is canceled, which the answers to the heartbeats tell.
      await sleep(Math.min(Math.max(due - Date.now(), 0), tickMs));
    } while (Date.now() < due);
  }
  return counts;

  function portion(step: number): number {
    return Math.floor((words.length * step) / steps);
  }
}
