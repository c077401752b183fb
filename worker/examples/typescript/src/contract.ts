import { ApplicationFailure } from '@temporalio/activity';

/** What Reclaim hands to the work as its second argument, and to the probe as its only one. */
export interface Meta {
  tenant: string;
  jobId: string;
  /** Counts from 1. */
  attempt: number;
  /** RFC 3339. When it passes the customer is refunded; a late result is still wanted. */
  promiseDeadline: string;
  /** Stays the same while it is unknown what became of the attempt before, and changes once that is known to have failed. */
  idempotencyKey: string;
}

export interface ProbeAnswer<Output> {
  state: 'succeeded' | 'failed' | 'running' | 'unknown';
  output?: Output;
}

/** The text to count, and how the counting should misbehave for a demonstration or a test. */
export interface Input {
  text: string;
  /** It takes at least so many milliseconds. */
  slowMs: number;
  /** The attempts 1 to failAttempts fail. */
  failAttempts: number;
  /** Every attempt fails for good. */
  neverSucceeds: boolean;
  /** Attempts that begin while a file of this name is in the results' folder fail. */
  failWhile: string;
}

const defaults: Input = { text: '', slowMs: 0, failAttempts: 0, neverSucceeds: false, failWhile: '' };
const longestMs = 24 * 60 * 60 * 1000;
const id = /^[A-Za-z0-9._:-]{1,100}$/;
const fileName = /^(?!\.{1,2}$)[A-Za-z0-9._-]{0,100}$/;

/** badInput is an error that no other attempt can mend: the job is refunded and closed as failed. */
export function badInput(message: string): ApplicationFailure {
  return ApplicationFailure.nonRetryable(message, 'BadText');
}

/** checkInput takes JSON of any shape: types are gone at run time, and a caller may have written any language. */
export function checkInput(value: unknown): Input {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw badInput('the input must be an object with a text');
  }
  for (const [field, given] of Object.entries(value)) {
    if (!Object.hasOwn(defaults, field)) throw badInput(`the field ${field} is not known`);
    const wanted = typeof defaults[field as keyof Input];
    if (typeof given !== wanted) throw badInput(`${field} must be a ${wanted}`);
  }
  const input = { ...defaults, ...(value as Partial<Input>) };
  if (input.text === '') throw badInput('text must not be empty');
  if (!(input.slowMs >= 0 && input.slowMs <= longestMs)) throw badInput(`slowMs must be 0 to ${longestMs}`);
  if (!fileName.test(input.failWhile)) throw badInput('failWhile must be a file name of A-Z a-z 0-9 . _ -');
  return input;
}

/** checkMeta looks at what the results are kept by. */
export function checkMeta(value: unknown): Meta {
  const { tenant, jobId, attempt, idempotencyKey } = (value ?? {}) as Partial<Record<keyof Meta, unknown>>;
  if (typeof tenant !== 'string' || typeof jobId !== 'string' || !id.test(tenant) || !id.test(jobId)) {
    throw badInput('tenant and jobId must be 1 to 100 characters of A-Z a-z 0-9 . _ : -');
  }
  if (typeof attempt !== 'number' || typeof idempotencyKey !== 'string') {
    throw badInput('attempt must be a number and idempotencyKey a string');
  }
  return value as Meta;
}
