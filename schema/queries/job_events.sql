-- name: LockJob :one
-- Locks a job for the rest of the transaction. No row: there is no such job. Its key stays free to be referred to: what is
-- observed of the job's refund locks that first, and its ledger entry then names the job.
SELECT job_id FROM reclaim.jobs WHERE tenant_id = @tenant_id AND job_id = @job_id FOR NO KEY UPDATE;

-- name: RecordJobEvent :one
-- Appends a line to a job's story that moves nothing, unless the same line is there already (a retry whose first
-- reply was lost, a report that was sent twice). Its transaction holds LockJob, so that it sees every other line. No
-- row: there is no such job.
WITH args AS (
    SELECT @kind::text AS kind, @attempt::integer AS attempt, @detail::text AS detail
), job AS (
    SELECT jobs.tenant_id, jobs.job_id FROM reclaim.jobs
    WHERE jobs.tenant_id = @tenant_id AND jobs.job_id = @job_id
), told AS (
    INSERT INTO reclaim.job_events (tenant_id, job_id, kind, attempt, detail)
    SELECT job.tenant_id, job.job_id, args.kind, args.attempt, args.detail FROM job, args
    WHERE NOT EXISTS (
        SELECT FROM reclaim.job_events AS past
        WHERE past.tenant_id = job.tenant_id AND past.job_id = job.job_id
            AND past.kind = args.kind AND past.attempt = args.attempt AND past.detail = args.detail)
    RETURNING event_id
)
SELECT CASE WHEN told.event_id IS NULL THEN 'already' ELSE 'applied' END::text AS answer
FROM job LEFT JOIN told ON true;
