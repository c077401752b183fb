-- name: SettleJob :one
-- Marks a job delivered, whatever its state, and takes its cost again if and only if a refund had given it back. No
-- row: there is no such job.
WITH args AS (
    SELECT @reason::text AS reason, @attempt::integer AS attempt, sqlc.narg(output)::text AS output,
        @not_after::timestamptz AS not_after
), job AS (
    SELECT * FROM reclaim.jobs
    WHERE jobs.tenant_id = @tenant_id AND jobs.job_id = @job_id
    FOR UPDATE
), verdict AS MATERIALIZED (
    SELECT job.*, clock_timestamp() AS at, CASE
        WHEN job.state = 'succeeded' THEN 'already'
        WHEN clock_timestamp() > args.not_after THEN 'too_late'
        ELSE 'applied' END AS answer
    FROM job, args
), moved AS (
    UPDATE reclaim.accounts SET balance = accounts.balance - verdict.cost, seq = accounts.seq + 1
    FROM verdict
    WHERE verdict.answer = 'applied' AND verdict.cost > 0 AND verdict.is_refunded
        AND accounts.tenant_id = verdict.tenant_id AND accounts.account_id = verdict.account_id
    RETURNING accounts.tenant_id, accounts.account_id, accounts.balance, accounts.seq, verdict.cost, verdict.job_id
), entry AS (
    INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, job_id, reason)
    SELECT tenant_id, account_id, seq, 'reclaim', -cost, balance, job_id, args.reason FROM moved, args
), changed AS (
    UPDATE reclaim.jobs SET
        state = 'succeeded',
        delivered_at = verdict.at,
        is_reclaimed = jobs.is_refunded,
        reclaimed_at = CASE WHEN jobs.is_refunded THEN verdict.at END,
        attempts = greatest(jobs.attempts, args.attempt),
        output = args.output,
        reason = args.reason,
        updated_at = verdict.at
    FROM verdict, args
    WHERE verdict.answer = 'applied' AND jobs.tenant_id = verdict.tenant_id AND jobs.job_id = verdict.job_id
    RETURNING jobs.*
)
SELECT
    job.answer::text AS answer,
    coalesce((SELECT balance FROM moved), 0)::bigint AS balance,
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
