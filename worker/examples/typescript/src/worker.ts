import { mkdirSync } from 'node:fs';
import { parseArgs } from 'node:util';

import { NativeConnection, Worker } from '@temporalio/worker';

import { activitiesOn } from './activities.js';
import { patientAnswers } from './patience.js';
import { Store } from './store.js';

const { values } = parseArgs({
  options: {
    'task-queue': { type: 'string', default: 'words' }, // the job's work.taskQueue
    results: { type: 'string', default: '.reclaim/words' }, // the folder to keep results in
  },
});
mkdirSync(values.results, { recursive: true });

const connection = await NativeConnection.connect({ address: process.env.TEMPORAL_ADDRESS ?? 'localhost:7233' });
try {
  const worker = await Worker.create({
    connection,
    namespace: process.env.TEMPORAL_NAMESPACE ?? 'default',
    taskQueue: values['task-queue'],
    activities: activitiesOn(new Store(values.results)),
    interceptors: { activity: [patientAnswers] },
    // A cancel comes back with a heartbeat, and without work.heartbeat the SDK would send one every 30 seconds only.
    defaultHeartbeatThrottleInterval: '1s',
    maxHeartbeatThrottleInterval: '1s',
    // After SIGTERM work under way is finished; process managers usually give 30 seconds before they kill.
    shutdownGraceTime: '20s',
  });
  await worker.run();
} finally {
  await connection.close();
}
