-- name: ChargeJob :one
-- Moves a job's cost off its account and creates the job, or answers with the job that is there. The one guard that
-- locks the account before it inserts its subject: a second charge of the same job at the same instant fails with
-- 23505, is undone whole, and answers already when repeated.
WITH args AS (
    SELECT @tenant_id::text AS tenant_id, @job_id::text AS job_id, @account_id::text AS account_id,
        @cost::bigint AS cost, @fingerprint::text AS fingerprint, @spec::text AS spec, @reason::text AS reason,
        @not_after::timestamptz AS not_after
), known AS (
    SELECT * FROM reclaim.jobs
    WHERE jobs.tenant_id = @tenant_id AND jobs.job_id = @job_id
    FOR UPDATE
), payer AS (
    SELECT account_id, balance FROM reclaim.accounts
    WHERE accounts.tenant_id = @tenant_id AND accounts.account_id = @account_id AND NOT EXISTS (SELECT FROM known)
    FOR UPDATE
), verdict AS MATERIALIZED (
    SELECT payer.balance, clock_timestamp() AS at, CASE
        WHEN known.fingerprint = args.fingerprint THEN 'already'
        WHEN known.job_id IS NOT NULL THEN 'conflict'
        WHEN clock_timestamp() > args.not_after THEN 'too_late'
        WHEN payer.account_id IS NULL THEN 'unknown_account'
        WHEN payer.balance < 0 THEN 'debt'
        WHEN payer.balance < args.cost THEN 'insufficient_credits'
        ELSE 'applied' END AS answer
    FROM args LEFT JOIN known ON true LEFT JOIN payer ON true
), created AS (
    INSERT INTO reclaim.jobs (tenant_id, job_id, account_id, cost, fingerprint, state, spec, created_at, updated_at)
    SELECT args.tenant_id, args.job_id, args.account_id, args.cost, args.fingerprint, 'running', args.spec, verdict.at,
        verdict.at
    FROM verdict, args WHERE verdict.answer = 'applied'
    RETURNING *
), moved AS (
    UPDATE reclaim.accounts SET balance = accounts.balance - args.cost, seq = accounts.seq + 1
    FROM verdict, args
    WHERE verdict.answer = 'applied' AND args.cost > 0
        AND accounts.tenant_id = @tenant_id AND accounts.account_id = @account_id
    RETURNING accounts.tenant_id, accounts.account_id, accounts.balance, accounts.seq
), entry AS (
    INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, job_id, reason)
    SELECT moved.tenant_id, moved.account_id, moved.seq, 'charge', -args.cost, moved.balance, args.job_id, args.reason
    FROM moved, args
)
SELECT
    verdict.answer::text AS answer,
    coalesce((SELECT balance FROM moved), verdict.balance, account.balance, 0)::bigint AS balance,
    coalesce(job.spec = args.spec, false)::boolean AS same_spec,
    coalesce(job.state, '')::text AS state,
    coalesce(job.cost, 0)::bigint AS cost,
    coalesce(job.is_refunded, false)::boolean AS is_refunded,
    coalesce(job.is_reclaimed, false)::boolean AS is_reclaimed,
    coalesce(job.attempts, 0)::integer AS attempts,
    coalesce(job.granted, 0)::integer AS granted,
    coalesce(job.key_attempt, 1)::integer AS key_attempt,
    coalesce(job.cancel_requested, false)::boolean AS cancel_requested,
    coalesce(left(job.reason, 200), '')::text AS reason,
    coalesce(job.created_at, clock_timestamp())::timestamptz AS created_at,
    coalesce(greatest(0, extract(epoch FROM clock_timestamp() - job.created_at) * 1000000), 0)::bigint AS age_us
FROM args
JOIN verdict ON true
LEFT JOIN (SELECT * FROM created UNION ALL SELECT * FROM known) AS job ON true
LEFT JOIN reclaim.accounts AS account ON verdict.answer = 'already'
    AND account.tenant_id = job.tenant_id AND account.account_id = job.account_id;
