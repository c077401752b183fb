-- name: GetRefund :one
-- The refund as it stands, with what its channel needs to know of the order and Postgres' own clock.
SELECT sqlc.embed(refund), orders.account_id, orders.channel, orders.channel_payment_id,
    (SELECT count(*) FROM reclaim.issues WHERE issues.tenant_id = refund.tenant_id AND issues.subject_kind = 'refund'
        AND issues.subject_id = refund.refund_id AND issues.state = 'open')::integer AS open_issues,
    (SELECT count(*) FROM reclaim.issues WHERE issues.tenant_id = refund.tenant_id AND issues.subject_kind = 'refund'
        AND issues.subject_id = refund.refund_id AND issues.state = 'resolved')::integer AS closed_issues,
    coalesce(open_issue.issue_id, '')::text AS issue_id, coalesce(open_issue.evidence, '')::text AS issue_evidence,
    clock_timestamp()::timestamptz AS now
FROM reclaim.refunds AS refund JOIN reclaim.orders USING (tenant_id, order_id)
LEFT JOIN LATERAL (
    SELECT issues.issue_id, issues.evidence FROM reclaim.issues
    WHERE issues.tenant_id = refund.tenant_id AND issues.subject_kind = 'refund' AND issues.subject_id = refund.refund_id
        AND issues.state = 'open'
    ORDER BY issues.opened_at DESC, issues.issue_id LIMIT 1
) AS open_issue ON true
WHERE refund.tenant_id = @tenant_id AND refund.refund_id = @refund_id;

-- name: GetRefundByNumber :one
-- Whose refund a number is that a channel reports.
SELECT refunds.tenant_id, refunds.refund_id, orders.channel
FROM reclaim.refunds JOIN reclaim.orders USING (tenant_id, order_id)
WHERE refunds.refund_id = @refund_id;

-- name: FindRefundTenant :one
-- Whose refund it is where a channel reports no number: the one of this reference, on this payment.
SELECT refunds.tenant_id, refunds.refund_id, orders.channel_payment_id AS payment
FROM reclaim.refunds JOIN reclaim.orders USING (tenant_id, order_id)
WHERE orders.channel = @channel AND orders.channel_payment_id = ANY (@payments::text[]) AND refunds.channel_ref = @channel_ref
    AND refunds.channel_ref <> ''
LIMIT 1;

-- name: GetRefundOfReference :one
-- Another refund of the channel that has this reference.
SELECT other.tenant_id, other.refund_id
FROM reclaim.refunds AS other JOIN reclaim.orders USING (tenant_id, order_id)
WHERE other.channel_ref = @channel_ref AND other.channel_ref <> '' AND orders.channel = @channel
    AND other.refund_id <> @refund_id
LIMIT 1;

-- name: LockRefund :one
SELECT refund_id FROM reclaim.refunds WHERE tenant_id = @tenant_id AND refund_id = @refund_id FOR UPDATE;

-- name: BeginSend :one
-- Commits, before the channel is called, that sending begins: accepted becomes unknown. Sending again is allowed where
-- the number was first sent less than @resend_within_us ago. No row: there is no such refund.
WITH args AS (
    SELECT @resend_within_us::bigint AS resend_within_us, @first_look_us::bigint AS first_look_us,
        @give_up_us::bigint AS give_up_us
), refund AS (
    SELECT * FROM reclaim.refunds
    WHERE refunds.tenant_id = @tenant_id AND refunds.refund_id = @refund_id
    FOR UPDATE
), verdict AS MATERIALIZED (
    SELECT refund.*, clock_timestamp() AS at, CASE
        WHEN refund.state = 'accepted' THEN 'applied'
        WHEN refund.state <> 'unknown' THEN 'wrong_state'
        WHEN clock_timestamp() < refund.first_sent_at + args.resend_within_us * interval '1 microsecond'
            THEN 'applied'
        ELSE 'number_expired' END AS answer
    FROM refund, args
), changed AS (
    UPDATE reclaim.refunds SET
        state = 'unknown',
        send_count = refunds.send_count + 1,
        first_sent_at = coalesce(refunds.first_sent_at, verdict.at),
        next_look_at = verdict.at + args.first_look_us * interval '1 microsecond',
        look_until = coalesce(refunds.look_until, verdict.at + args.give_up_us * interval '1 microsecond'),
        resend_requested = false,
        event_seq = refunds.event_seq + 1,
        last_outcome = 'sending', last_code = '',
        updated_at = verdict.at
    FROM verdict, args
    WHERE verdict.answer = 'applied'
        AND refunds.tenant_id = verdict.tenant_id AND refunds.refund_id = verdict.refund_id
    RETURNING refunds.*
), told AS (
    INSERT INTO reclaim.refund_events (tenant_id, refund_id, seq, source, from_state, to_state, outcome, amount, currency,
        evidence, observed_at)
    SELECT changed.tenant_id, changed.refund_id, changed.event_seq, 'send', verdict.state, 'unknown', 'sending',
        changed.amount, changed.currency, 'sending number ' || changed.send_count, verdict.at
    FROM changed, verdict
)
SELECT verdict.answer::text AS answer FROM verdict;

-- name: CancelRefund :one
-- Withdraws a refund that was not sent: the reservation is released and the credits come back. No row: there is no such
-- refund.
WITH args AS (
    SELECT @actor::text AS actor, @reason::text AS reason
), refund AS (
    SELECT * FROM reclaim.refunds
    WHERE refunds.tenant_id = @tenant_id AND refunds.refund_id = @refund_id
    FOR UPDATE
), verdict AS MATERIALIZED (
    SELECT refund.*, orders.account_id, clock_timestamp() AS at, CASE
        WHEN refund.state = 'accepted' THEN 'applied'
        WHEN refund.state = 'canceled' THEN 'already'
        ELSE 'wrong_state' END AS answer
    FROM refund JOIN reclaim.orders USING (tenant_id, order_id)
), changed AS (
    UPDATE reclaim.refunds SET state = 'canceled', returned_at = verdict.at,
        needs_review = EXISTS (SELECT FROM reclaim.issues WHERE issues.tenant_id = verdict.tenant_id
            AND issues.subject_kind = 'refund' AND issues.subject_id = verdict.refund_id AND issues.state = 'open'),
        event_seq = refunds.event_seq + 1, last_outcome = 'canceled', last_code = '', updated_at = verdict.at
    FROM verdict
    WHERE verdict.answer = 'applied'
        AND refunds.tenant_id = verdict.tenant_id AND refunds.refund_id = verdict.refund_id
    RETURNING refunds.*
), told AS (
    INSERT INTO reclaim.refund_events (tenant_id, refund_id, seq, source, from_state, to_state, outcome, evidence, actor,
        observed_at)
    SELECT changed.tenant_id, changed.refund_id, changed.event_seq, 'person', 'accepted', 'canceled', 'canceled',
        args.reason, args.actor, changed.updated_at
    FROM changed, args
), counted AS (
    UPDATE reclaim.orders SET reserved = orders.reserved - changed.amount,
        reserved_credits = orders.reserved_credits - changed.credits
    FROM changed
    WHERE orders.tenant_id = changed.tenant_id AND orders.order_id = changed.order_id
    RETURNING orders.order_id
), moved AS (
    -- after the order, as everywhere: whoever accepts a refund has the order's lock when asking for the account's
    UPDATE reclaim.accounts SET balance = accounts.balance + changed.credits, seq = accounts.seq + 1
    FROM changed, verdict, counted
    WHERE changed.credits > 0 AND accounts.tenant_id = changed.tenant_id AND accounts.account_id = verdict.account_id
    RETURNING accounts.tenant_id, accounts.account_id, accounts.balance, accounts.seq
), entry AS (
    INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, job_id, order_id,
        refund_id, reason)
    SELECT moved.tenant_id, moved.account_id, moved.seq, 'payout_return', changed.credits, moved.balance, changed.job_id,
        changed.order_id, changed.refund_id, args.reason
    FROM moved, changed, args
)
SELECT verdict.answer::text AS answer, coalesce(changed.state, verdict.state)::text AS state
FROM verdict LEFT JOIN changed ON true;

-- name: FlagRefund :execrows
-- Says that a person must look at the refund.
UPDATE reclaim.refunds SET needs_review = true, updated_at = clock_timestamp()
WHERE tenant_id = @tenant_id AND refund_id = @refund_id AND NOT needs_review
    AND state IN ('accepted', 'unknown', 'pending');

-- name: ExtendRefund :exec
-- Goes on looking the refund up, from now on and for another @give_up_us; @resend asks to send its number again first.
WITH args AS (
    SELECT @give_up_us::bigint AS give_up_us, @resend::boolean AS resend
)
UPDATE reclaim.refunds SET next_look_at = clock_timestamp(),
    needs_review = EXISTS (SELECT FROM reclaim.issues WHERE issues.tenant_id = refunds.tenant_id
        AND issues.subject_kind = 'refund' AND issues.subject_id = refunds.refund_id AND issues.state = 'open'),
    look_until = clock_timestamp() + args.give_up_us * interval '1 microsecond',
    resend_requested = args.resend, updated_at = clock_timestamp()
FROM args WHERE refunds.tenant_id = @tenant_id AND refunds.refund_id = @refund_id;

-- name: GetResolution :one
SELECT * FROM reclaim.resolutions
WHERE tenant_id = @tenant_id AND subject_kind = @subject_kind AND subject_id = @subject_id
    AND resolution_id = @resolution_id;

-- name: InsertResolution :exec
INSERT INTO reclaim.resolutions (tenant_id, subject_kind, subject_id, resolution_id, action, operator, approver, reason,
    evidence, particulars, outcome, state, refusal)
VALUES (@tenant_id, @subject_kind, @subject_id, @resolution_id, @action, @operator, @approver, @reason, @evidence,
    @particulars, @outcome, @state, @refusal);

-- name: ListRefundEvents :many
SELECT * FROM reclaim.refund_events WHERE tenant_id = @tenant_id AND refund_id = @refund_id ORDER BY seq;

-- name: ListOrderRefunds :many
SELECT * FROM reclaim.refunds WHERE tenant_id = @tenant_id AND order_id = @order_id ORDER BY created_at, refund_id;

-- name: ListPaymentTenants :many
-- Whose orders a channel's payment bought, by any of its names.
SELECT DISTINCT tenant_id FROM reclaim.orders
WHERE channel = @channel AND channel_payment_id = ANY (@payments::text[]);
