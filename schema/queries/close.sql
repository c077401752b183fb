-- name: CloseJob :one
-- Ends an undelivered job as failed or canceled and gives its cost back if that was not done, recording at the same
-- time the attempt that ended (@attempt 0: none did). No row: there is no such job.
WITH args AS (
    SELECT @state::text AS state, @reason::text AS reason, @attempt::integer AS attempt,
        @attempt_error::text AS attempt_error, @not_after::timestamptz AS not_after
), job AS (
    SELECT * FROM reclaim.jobs
    WHERE jobs.tenant_id = @tenant_id AND jobs.job_id = @job_id
    FOR UPDATE
), verdict AS MATERIALIZED (
    SELECT job.*, clock_timestamp() AS at, CASE
        WHEN job.state = args.state THEN 'already'
        WHEN job.state NOT IN ('running', 'dead_letter') THEN 'closed'
        WHEN clock_timestamp() > args.not_after THEN 'too_late'
        ELSE 'applied' END AS answer
    FROM job, args
), moved AS (
    UPDATE reclaim.accounts SET balance = accounts.balance + verdict.cost, seq = accounts.seq + 1
    FROM verdict
    WHERE verdict.answer = 'applied' AND verdict.cost > 0 AND NOT verdict.is_refunded
        AND accounts.tenant_id = verdict.tenant_id AND accounts.account_id = verdict.account_id
    RETURNING accounts.tenant_id, accounts.account_id, accounts.balance, accounts.seq, verdict.cost, verdict.job_id
), entry AS (
    INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, job_id, reason)
    SELECT tenant_id, account_id, seq, 'refund', cost, balance, job_id, args.reason FROM moved, args
), changed AS (
    UPDATE reclaim.jobs SET
        state = args.state,
        is_refunded = true,
        refunded_at = coalesce(jobs.refunded_at, verdict.at),
        attempts = greatest(jobs.attempts, args.attempt),
        key_attempt = greatest(jobs.key_attempt, args.attempt + 1),
        last_error = CASE WHEN args.attempt > jobs.attempts THEN args.attempt_error ELSE jobs.last_error END,
        reason = args.reason,
        updated_at = verdict.at
    FROM verdict, args
    WHERE verdict.answer = 'applied' AND jobs.tenant_id = verdict.tenant_id AND jobs.job_id = verdict.job_id
    RETURNING jobs.*
), told AS (
    INSERT INTO reclaim.job_events (tenant_id, job_id, kind, attempt, detail, created_at)
    SELECT verdict.tenant_id, verdict.job_id, event.kind, event.attempt, event.detail, verdict.at
    FROM changed, verdict, args, LATERAL (VALUES
        ('attempt_failed', args.attempt, args.attempt_error, args.attempt >= verdict.key_attempt),
        ('closed', 0, args.state, true)
    ) AS event (kind, attempt, detail, happened)
    WHERE event.happened
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
