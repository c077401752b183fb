-- name: ResolveJob :one
-- Applies a person's decision and its effect together, once for each resolution id. A refusal is recorded where
-- @record_refusal says so (a signal has nobody to answer to). Two decisions with one id at the same instant: one gets
-- 23505, is undone whole, and is answered from the other when repeated. No row: there is no such job.
WITH args AS (
    SELECT @resolution_id::text AS resolution_id, @action::text AS action, @attempts::integer AS attempts,
        @operator::text AS operator, @reason::text AS reason, @evidence::text AS evidence,
        @entry_reason::text AS entry_reason, @invalid::text AS invalid, @record_refusal::boolean AS record_refusal,
        @not_after::timestamptz AS not_after
), job AS (
    SELECT * FROM reclaim.jobs
    WHERE jobs.tenant_id = @tenant_id AND jobs.job_id = @job_id
    FOR UPDATE
), prior AS (
    SELECT past.resolution_id, past.outcome, past.state, past.refusal,
        (past.action, past.attempts, past.operator, past.reason, past.evidence)
        = (args.action, args.attempts, args.operator, args.reason, args.evidence) AS same
    FROM job, args, reclaim.resolutions AS past
    WHERE past.tenant_id = job.tenant_id AND past.subject_kind = 'job' AND past.subject_id = job.job_id
        AND past.resolution_id = args.resolution_id
), verdict AS MATERIALIZED (
    SELECT job.*, clock_timestamp() AS at,
        prior.outcome AS prior_outcome, prior.state AS prior_state, prior.refusal AS prior_refusal, CASE
        WHEN prior.same THEN 'already'
        WHEN prior.resolution_id IS NOT NULL THEN 'id_reused'
        WHEN clock_timestamp() > args.not_after THEN 'too_late'
        WHEN args.invalid <> '' THEN 'invalid'
        WHEN NOT CASE job.state
            WHEN 'running' THEN args.action IN ('deliver', 'write_off')
            WHEN 'dead_letter' THEN args.action IN ('retry', 'deliver', 'write_off')
            WHEN 'succeeded' THEN false
            ELSE args.action = 'deliver' END THEN 'wrong_state'
        ELSE 'applied' END AS answer
    FROM args, job LEFT JOIN prior ON true
), moved AS (
    UPDATE reclaim.accounts SET
        balance = accounts.balance + CASE WHEN args.action = 'deliver' THEN -verdict.cost ELSE verdict.cost END,
        seq = accounts.seq + 1
    FROM verdict, args
    WHERE verdict.answer = 'applied' AND verdict.cost > 0
        AND (args.action = 'deliver' AND verdict.is_refunded OR args.action = 'write_off' AND NOT verdict.is_refunded)
        AND accounts.tenant_id = verdict.tenant_id AND accounts.account_id = verdict.account_id
    RETURNING accounts.tenant_id, accounts.account_id, accounts.balance, accounts.seq, verdict.cost, verdict.job_id
), entry AS (
    INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, job_id, reason)
    SELECT tenant_id, account_id, seq, CASE WHEN args.action = 'deliver' THEN 'reclaim' ELSE 'refund' END,
        CASE WHEN args.action = 'deliver' THEN -cost ELSE cost END, balance, job_id, args.entry_reason
    FROM moved, args
), changed AS (
    UPDATE reclaim.jobs SET
        state = CASE args.action WHEN 'retry' THEN 'running' WHEN 'deliver' THEN 'succeeded' ELSE 'written_off' END,
        granted = jobs.granted + CASE WHEN args.action = 'retry' THEN args.attempts ELSE 0 END,
        is_refunded = jobs.is_refunded OR args.action = 'write_off',
        refunded_at = coalesce(jobs.refunded_at, CASE WHEN args.action = 'write_off' THEN verdict.at END),
        delivered_at = CASE WHEN args.action = 'deliver' THEN verdict.at END,
        is_reclaimed = args.action = 'deliver' AND jobs.is_refunded,
        reclaimed_at = CASE WHEN args.action = 'deliver' AND jobs.is_refunded THEN verdict.at END,
        reason = args.entry_reason,
        updated_at = verdict.at
    FROM verdict, args
    WHERE verdict.answer = 'applied' AND jobs.tenant_id = verdict.tenant_id AND jobs.job_id = verdict.job_id
    RETURNING jobs.*
), recorded AS (
    INSERT INTO reclaim.resolutions (tenant_id, subject_kind, subject_id, resolution_id, action, attempts, operator,
        reason, evidence, outcome, state, refusal, created_at)
    SELECT verdict.tenant_id, 'job', verdict.job_id, args.resolution_id, args.action, args.attempts, args.operator,
        args.reason, args.evidence, CASE WHEN verdict.answer = 'applied' THEN 'applied' ELSE 'refused' END,
        coalesce((SELECT state FROM changed), verdict.state),
        CASE verdict.answer WHEN 'applied' THEN '' WHEN 'invalid' THEN args.invalid
            ELSE args.action || ' is not possible while the job is ' || verdict.state END,
        verdict.at
    FROM verdict, args
    WHERE verdict.answer = 'applied' OR verdict.answer IN ('invalid', 'wrong_state') AND args.record_refusal
)
SELECT
    job.answer::text AS answer,
    coalesce((SELECT balance FROM moved), 0)::bigint AS balance,
    coalesce(job.prior_outcome, '')::text AS prior_outcome,
    coalesce(job.prior_state, '')::text AS prior_state,
    coalesce(job.prior_refusal, '')::text AS prior_refusal,
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
