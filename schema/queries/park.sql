-- name: ParkJob :one
-- Makes a refunded job whose attempts are used up a dead letter. The limit is judged on the row, granted attempts
-- included, so that a delayed statement cannot undo a retry. No row: there is no such job.
WITH args AS (
    SELECT @reason::text AS reason, @max_attempts::integer AS max_attempts
), job AS (
    SELECT * FROM reclaim.jobs
    WHERE jobs.tenant_id = @tenant_id AND jobs.job_id = @job_id
    FOR UPDATE
), verdict AS MATERIALIZED (
    SELECT job.*, clock_timestamp() AS at, CASE
        WHEN job.state = 'dead_letter' THEN 'already'
        WHEN job.state <> 'running' THEN 'not_running'
        WHEN NOT job.is_refunded THEN 'not_refunded'
        WHEN job.attempts < args.max_attempts + job.granted THEN 'attempts_left'
        ELSE 'applied' END AS answer
    FROM job, args
), changed AS (
    -- An UPDATE that meets a newer version of its row tries the CHECKs on the one of its snapshot first, which may be from
    -- before the refund: the refund is written again.
    UPDATE reclaim.jobs SET state = 'dead_letter', is_refunded = verdict.is_refunded, refunded_at = verdict.refunded_at,
        reason = args.reason, updated_at = verdict.at
    FROM verdict, args
    WHERE verdict.answer = 'applied' AND jobs.tenant_id = verdict.tenant_id AND jobs.job_id = verdict.job_id
    RETURNING jobs.*
), told AS (
    INSERT INTO reclaim.job_events (tenant_id, job_id, kind, attempt, detail, created_at)
    SELECT tenant_id, job_id, 'dead_letter', attempts, reason, updated_at FROM changed
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
