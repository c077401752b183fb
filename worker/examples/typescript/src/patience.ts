import { CompleteAsyncError, type Context } from '@temporalio/activity';
import { ActivityNotFoundError } from '@temporalio/client';
import type { ActivityInterceptors } from '@temporalio/worker';

/** For how long a result is offered to a server that does not take it. */
const patienceMs = 5 * 60_000;
const offerMs = 10_000;
const pauseMs = 1_000;

/**
 * patientAnswers delivers what activities return, and keeps trying for minutes.
 *
 * The SDK offers an answer for 10 seconds, which cannot be set, and then drops it: finished and paid work would be taken for
 * lost. So the result is sent here, and the SDK is told that somebody else completes the activity. Errors are left to the
 * SDK: one that is lost costs a wait until the attempt's timeout, and no work.
 */
export function patientAnswers(context: Context): ActivityInterceptors {
  return {
    inbound: {
      async execute(input, next) {
        const result = await next(input);
        if (await deliver(context, result)) throw new CompleteAsyncError();
        return result;
      },
    },
  };
}

/** deliver says whether the server has the result, or has no use for it any more. */
async function deliver({ client, info, log, cancellationSignal }: Context, result: unknown): Promise<boolean> {
  const giveUp = Date.now() + patienceMs;
  for (let offer = 1; Date.now() < giveUp; offer++) {
    try {
      await client.withDeadline(Date.now() + offerMs, () => client.activity.complete(info.taskToken, result));
      return true;
    } catch (error) {
      if (error instanceof ActivityNotFoundError) return true;
      log.warn('The result was not taken', { offer, error });
    }
    // A worker that is stopping leaves the last offers to the SDK.
    if (cancellationSignal.aborted && cancellationSignal.reason?.message === 'WORKER_SHUTDOWN') break;
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
  return false;
}
