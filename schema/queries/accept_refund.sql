-- name: AcceptRefund :one
-- Accepts a refund through the order's channel: claims the operation, reserves the order's money and credits, takes the
-- credits off the account, writes the refund and the outbox row that starts its workflow. Amount or credits may be
-- null: each then follows from the other, credits rounded up and money down, and the last takes all that is left. The
-- caller holds the order's lock (LockOrder), so that this statement sees every refund that was accepted before. Two
-- requests under one key for different orders: one gets 23505, and is answered conflict when repeated.
WITH args AS (
    SELECT @tenant_id::text AS tenant_id, @refund_id::text AS refund_id, @order_id::text AS order_id,
        sqlc.narg(job_id)::text AS job_id, sqlc.narg(account_id)::text AS account_id, @actor::text AS actor,
        @key::text AS key, @fingerprint::text AS fingerprint, sqlc.narg(amount)::bigint AS amount,
        sqlc.narg(credits)::bigint AS credits, @currency::text AS currency, @reason::text AS reason,
        @retention_us::bigint AS retention_us, @not_after::timestamptz AS not_after
), known AS (
    SELECT * FROM reclaim.operations AS past
    WHERE past.tenant_id = @tenant_id AND past.actor = @actor AND past.kind = 'refund' AND past.key = @key
), past AS (
    SELECT * FROM reclaim.refunds WHERE refunds.tenant_id = @tenant_id AND refunds.refund_id = @refund_id
), ord AS (
    SELECT orders.*, orders.paid - orders.reserved - orders.refunded AS left_money,
        orders.credits - orders.reserved_credits - orders.refunded_credits AS left_credits
    FROM reclaim.orders WHERE orders.tenant_id = @tenant_id AND orders.order_id = @order_id
    FOR UPDATE
), asked AS (
    SELECT ord.*,
        CASE WHEN args.amount IS NOT NULL THEN args.amount
            WHEN args.credits = ord.left_credits THEN ord.left_money
            ELSE div(ord.left_money::numeric * args.credits, greatest(ord.left_credits, 1)) END::numeric AS amount,
        CASE WHEN args.credits IS NOT NULL THEN args.credits
            WHEN args.amount = ord.left_money THEN ord.left_credits
            ELSE div(ord.left_credits::numeric * args.amount + ord.left_money - 1, greatest(ord.left_money, 1)) END::numeric
            AS asked_credits
    FROM ord, args
), payer AS (
    SELECT account_id, balance FROM reclaim.accounts
    WHERE accounts.tenant_id = @tenant_id AND accounts.account_id = (SELECT ord.account_id FROM ord)
    FOR UPDATE
), verdict AS MATERIALIZED (
    SELECT asked.account_id, asked.currency, asked.amount, asked.asked_credits, asked.left_money, asked.left_credits,
        payer.balance, clock_timestamp() AS at, CASE
            WHEN known.fingerprint = args.fingerprint THEN 'already'
            WHEN known.key IS NOT NULL THEN 'conflict'
            WHEN past.refund_id IS NOT NULL THEN CASE WHEN args.job_id IS NULL THEN 'expired' ELSE 'already' END
            WHEN asked.order_id IS NULL THEN 'unknown_order'
            WHEN clock_timestamp() > args.not_after THEN 'too_late'
            WHEN args.account_id IS NOT NULL AND args.account_id <> asked.account_id THEN 'other_account'
            WHEN args.currency <> '' AND args.currency <> asked.currency THEN 'other_currency'
            WHEN asked.amount > asked.left_money THEN 'capacity'
            WHEN asked.asked_credits > asked.left_credits THEN 'credits_capacity'
            WHEN asked.amount < 1 THEN 'nothing_left'
            WHEN asked.asked_credits > 0 AND payer.balance < 0 THEN 'debt'
            WHEN asked.asked_credits > greatest(payer.balance, 0) THEN 'insufficient_credits'
            ELSE 'applied' END AS answer
    FROM args LEFT JOIN known ON true LEFT JOIN past ON true LEFT JOIN asked ON true LEFT JOIN payer ON true
), reserved AS (
    UPDATE reclaim.orders SET reserved = orders.reserved + verdict.amount,
        reserved_credits = orders.reserved_credits + verdict.asked_credits
    FROM verdict, args
    WHERE verdict.answer = 'applied' AND orders.tenant_id = args.tenant_id AND orders.order_id = args.order_id
), created AS (
    INSERT INTO reclaim.refunds (tenant_id, refund_id, order_id, job_id, amount, currency, credits, state, requested_by,
        reason, event_seq, last_outcome, created_at, updated_at)
    SELECT args.tenant_id, args.refund_id, args.order_id, args.job_id, verdict.amount, verdict.currency,
        verdict.asked_credits, 'accepted', args.actor, args.reason, 1, 'accepted', verdict.at, verdict.at
    FROM verdict, args WHERE verdict.answer = 'applied'
    RETURNING *
), told AS (
    INSERT INTO reclaim.refund_events (tenant_id, refund_id, seq, source, from_state, to_state, outcome, amount, currency,
        evidence, actor, observed_at)
    SELECT created.tenant_id, created.refund_id, 1, 'accept', '', 'accepted', 'accepted', created.amount,
        created.currency, created.reason, args.actor, created.created_at
    FROM created, args
), moved AS (
    UPDATE reclaim.accounts SET balance = accounts.balance - created.credits, seq = accounts.seq + 1
    FROM created, verdict
    WHERE created.credits > 0 AND accounts.tenant_id = created.tenant_id AND accounts.account_id = verdict.account_id
    RETURNING accounts.tenant_id, accounts.account_id, accounts.balance, accounts.seq
), entry AS (
    INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, job_id, order_id,
        refund_id, reason)
    SELECT moved.tenant_id, moved.account_id, moved.seq, 'payout', -created.credits, moved.balance, created.job_id,
        created.order_id, created.refund_id, created.reason
    FROM moved, created
), claimed AS (
    INSERT INTO reclaim.operations (tenant_id, actor, kind, key, fingerprint, subject_id, expires_at)
    SELECT args.tenant_id, args.actor, 'refund', args.key, args.fingerprint, args.refund_id,
        verdict.at + args.retention_us * interval '1 microsecond'
    FROM created, args, verdict
), queued AS (
    INSERT INTO reclaim.outbox (kind, tenant_id, subject_id, payload)
    SELECT 'start_refund', created.tenant_id, created.refund_id,
        json_build_object('tenant', created.tenant_id, 'refundId', created.refund_id)::text
    FROM created
)
SELECT
    verdict.answer::text AS answer,
    coalesce(refund.refund_id, known.subject_id, args.refund_id)::text AS refund_id,
    coalesce(refund.state, '')::text AS state,
    -- what was asked for may be more than a bigint holds
    coalesce(refund.amount, least(verdict.amount, 9223372036854775807), 0)::bigint AS amount,
    coalesce(refund.currency, verdict.currency, '')::text AS currency,
    coalesce(refund.credits, least(verdict.asked_credits, 9223372036854775807), 0)::bigint AS credits,
    coalesce(verdict.left_money, 0)::bigint AS left_money,
    coalesce(verdict.left_credits, 0)::bigint AS left_credits,
    coalesce((SELECT balance FROM moved), verdict.balance, 0)::bigint AS balance
FROM args
JOIN verdict ON true
LEFT JOIN known ON true
LEFT JOIN (SELECT * FROM created UNION ALL SELECT * FROM past) AS refund ON true;

-- name: GetRefundOperation :one
SELECT * FROM reclaim.operations WHERE tenant_id = @tenant_id AND actor = @actor AND kind = 'refund' AND key = @key;

-- name: PurgeOperations :execrows
-- Forgets operations whose retention has passed, a bounded number at a time and beside others that do the same.
DELETE FROM reclaim.operations WHERE ctid IN (
    SELECT ctid FROM reclaim.operations WHERE expires_at < clock_timestamp() LIMIT @at_most
);
