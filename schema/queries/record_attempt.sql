-- name: RecordAttempt :one
-- Counts an attempt that ended without moving money. An attempt recorded as unknown may be recorded once more, as
-- failed, when a probe says so. No row: there is no such job.
WITH args AS (
    SELECT @attempt::integer AS attempt, @attempt_failed::boolean AS attempt_failed,
        @attempt_error::text AS attempt_error
), job AS (
    SELECT * FROM reclaim.jobs
    WHERE jobs.tenant_id = @tenant_id AND jobs.job_id = @job_id
    FOR UPDATE
), verdict AS MATERIALIZED (
    SELECT job.*, clock_timestamp() AS at, CASE
        WHEN job.attempts >= args.attempt AND (NOT args.attempt_failed OR job.key_attempt > args.attempt) THEN 'already'
        WHEN job.state <> 'running' THEN 'not_running'
        ELSE 'applied' END AS answer
    FROM job, args
), changed AS (
    UPDATE reclaim.jobs SET
        attempts = greatest(jobs.attempts, args.attempt),
        key_attempt = greatest(jobs.key_attempt, CASE WHEN args.attempt_failed THEN args.attempt + 1 END),
        last_error = args.attempt_error,
        updated_at = verdict.at
    FROM verdict, args
    WHERE verdict.answer = 'applied' AND jobs.tenant_id = verdict.tenant_id AND jobs.job_id = verdict.job_id
    RETURNING jobs.*
), told AS (
    INSERT INTO reclaim.job_events (tenant_id, job_id, kind, attempt, detail, created_at)
    SELECT tenant_id, job_id, CASE WHEN args.attempt_failed THEN 'attempt_failed' ELSE 'attempt_unknown' END,
        args.attempt, args.attempt_error, updated_at
    FROM changed, args
)
SELECT
    job.answer::text AS answer,
    0::bigint AS balance,
    coalesce(changed.state, job.state)::text AS state,
    job.cost::bigint AS cost,
    coalesce(changed.is_refunded, job.is_refunded)::boolean AS is_refunded,
    coalesce(changed.is_reclaimed, job.is_reclaimed)::boolean AS is_reclaimed,
    coalesce(changed.attempts, job.attempts)::integer AS attempts,
    coalesce(changed.granted, job.granted)::integer AS granted,
    coalesce(changed.key_attempt, job.key_attempt)::integer AS key_attempt,
    coalesce(changed.cancel_requested, job.cancel_requested)::boolean AS cancel_requested,
    left(coalesce(changed.reason, job.reason), 200)::text AS reason,
    job.created_at::timestamptz AS created_at,
    greatest(0, extract(epoch FROM clock_timestamp() - job.created_at) * 1000000)::bigint AS age_us
FROM verdict AS job
LEFT JOIN changed ON true;
