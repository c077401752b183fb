-- name: ApplyEvidence :one
-- Applies one observation of a refund, whatever its source: the only statement that moves a refund on from unknown or
-- pending. The row's lock makes observations come one after another, and each is judged against what is known then: a
-- success moves the reservation to refunded; a definite failure releases it and gives the credits back, also after a
-- success where the channel is known to take refunds back; what contradicts a final result, or does not match the
-- refund, changes nothing and opens an issue; the rest is recorded. A repeated observation is not told twice. No row:
-- there is no such refund.
WITH given AS (
    SELECT @source::text AS source, @outcome::text AS outcome, @number::text AS number, @channel_ref::text AS channel_ref,
        @payment::text AS payment, @amount::bigint AS amount, lower(@currency::text) AS currency, @code::text AS code,
        @evidence::text AS evidence, @sends::integer AS sends, @actor::text AS actor,
        sqlc.narg(observed_at)::timestamptz AS observed_at, @reversible::boolean AS reversible,
        @next_look_us::bigint AS next_look_us, @refusal::boolean AS refusal,
        @elsewhere::boolean AS elsewhere, @known_seq::bigint AS known_seq
), refund AS (
    SELECT * FROM reclaim.refunds
    WHERE refunds.tenant_id = @tenant_id AND refunds.refund_id = @refund_id
    FOR UPDATE
), args AS MATERIALIZED (
    -- A refusal proves something about the request that it answers. Where the number went out more than once, another may
    -- have been taken, say under another key of the channel's account; and a reference says that one was.
    SELECT given.source, CASE WHEN again.refused THEN 'unknown' ELSE given.outcome END AS outcome, given.number,
        given.channel_ref, given.payment, given.amount, given.currency,
        CASE WHEN again.refused THEN 'refused_when_sent_again: ' || left(given.code, 40) ELSE given.code END AS code,
        given.evidence, given.sends, given.actor, given.observed_at, given.reversible, given.next_look_us,
        given.elsewhere, given.known_seq
    FROM given, refund, LATERAL (
        SELECT given.refusal AND (refund.send_count > 1 OR given.sends > 1 OR refund.channel_ref <> '') AS refused) AS again
), judged AS MATERIALIZED (
    SELECT refund.*, orders.account_id, clock_timestamp() AS at, CASE
        WHEN args.number <> '' AND args.number <> refund.refund_id
            OR args.payment <> '' AND args.payment <> orders.channel_payment_id
            OR args.channel_ref <> '' AND refund.channel_ref <> '' AND args.channel_ref <> refund.channel_ref
            -- by the snapshot: two that are given one reference in the same moment, audit finds
            OR args.channel_ref <> '' AND refund.channel_ref = '' AND EXISTS (SELECT FROM reclaim.refunds AS other
                JOIN reclaim.orders AS its ON its.tenant_id = other.tenant_id AND its.order_id = other.order_id
                WHERE other.channel_ref <> '' AND other.channel_ref = args.channel_ref AND its.channel = orders.channel)
            OR args.currency <> '' AND (args.amount, args.currency) <> (refund.amount, refund.currency)
            THEN 'evidence_mismatch'
        WHEN args.outcome IN ('pending', 'succeeded') AND args.channel_ref = '' AND refund.channel_ref = ''
            OR args.outcome = 'succeeded' AND args.currency = ''
            THEN 'evidence_incomplete'
        WHEN args.outcome IN ('pending', 'succeeded') AND refund.state IN ('accepted', 'canceled')
            THEN 'refund_never_sent'
        WHEN args.outcome = 'failed' AND refund.state = 'accepted' THEN 'refund_never_sent'
        WHEN args.outcome = 'pending' AND refund.state = 'failed' AND refund.channel_ref = '' THEN 'pending_after_failure'
        WHEN args.elsewhere AND refund.state = 'unknown' THEN 'refunded_elsewhere'
        WHEN args.outcome = 'pending' AND refund.state = 'unknown' THEN 'acknowledge'
        WHEN args.outcome = 'succeeded' AND refund.state IN ('unknown', 'pending') THEN 'settle'
        WHEN args.outcome = 'succeeded' AND refund.state = 'failed' THEN 'success_after_failure'
        WHEN args.outcome = 'failed' AND refund.state IN ('unknown', 'pending') THEN 'release'
        WHEN args.outcome = 'failed' AND refund.state = 'succeeded' AND args.reversible THEN 'reverse'
        WHEN args.outcome = 'failed' AND refund.state = 'succeeded' THEN 'failure_after_success'
        -- a channel that was asked before it acknowledged may answer after that
        WHEN args.outcome = 'not_found' AND refund.state IN ('pending', 'succeeded')
            AND args.known_seq IN (0, refund.event_seq) THEN 'reference_lost'
        ELSE 'record' END AS effect
    FROM refund, args, reclaim.orders
    WHERE orders.tenant_id = refund.tenant_id AND orders.order_id = refund.order_id
), verdict AS MATERIALIZED (
    SELECT judged.*,
        judged.effect NOT IN ('acknowledge', 'settle', 'release', 'reverse', 'record') AS contradicts,
        CASE judged.effect WHEN 'acknowledge' THEN 'pending' WHEN 'settle' THEN 'succeeded' WHEN 'release' THEN 'failed'
            WHEN 'reverse' THEN 'reversed' ELSE judged.state END AS to_state,
        judged.effect IN ('release', 'reverse') AND judged.credits > 0 AS returns,
        -- by the snapshot, which does not see an issue that was opened while this statement waited for the row
        EXISTS (SELECT FROM reclaim.issues WHERE issues.tenant_id = judged.tenant_id AND issues.subject_kind = 'refund'
                AND issues.subject_id = judged.refund_id AND issues.state = 'open')
            OR judged.needs_review AND EXISTS (SELECT FROM reclaim.refunds AS past
                WHERE past.tenant_id = judged.tenant_id AND past.refund_id = judged.refund_id
                    AND NOT past.needs_review AND past.event_seq <> judged.event_seq) AS has_issue,
        CASE WHEN judged.effect = 'reverse' THEN 'refund_reversed:' || judged.refund_id
            WHEN judged.effect NOT IN ('acknowledge', 'settle', 'release', 'record')
            THEN judged.effect || ':' || judged.refund_id || ':' || left(md5(concat_ws('|', args.outcome, args.number,
                args.channel_ref, args.payment, args.amount, args.currency)), 12) END AS issue_id
    FROM judged, args
), opened AS (
    INSERT INTO reclaim.issues (tenant_id, issue_id, kind, subject_kind, subject_id, evidence)
    SELECT verdict.tenant_id, verdict.issue_id, CASE WHEN verdict.effect = 'reverse' THEN 'refund_reversed'
            ELSE verdict.effect END, 'refund', verdict.refund_id,
        left('the refund is ' || verdict.state || ' (' || verdict.amount || ' ' || verdict.currency || ' '
            || verdict.channel_ref || '); by ' || args.source || ' it is ' || args.outcome
            || ' (' || args.amount || ' ' || args.currency || ' ' || args.channel_ref || ' ' || args.number || ') '
            || args.code, 1000)
    FROM verdict, args WHERE verdict.issue_id IS NOT NULL
    ON CONFLICT DO NOTHING
    RETURNING issue_id
), news AS MATERIALIZED (
    SELECT CASE WHEN verdict.contradicts THEN EXISTS (SELECT FROM opened) OR args.sends > 0
        ELSE verdict.to_state <> verdict.state OR (args.outcome, args.code) <> (verdict.last_outcome, verdict.last_code)
            OR args.sends > 0 OR verdict.channel_ref = '' AND args.channel_ref <> '' END AS told
    FROM verdict, args
), changed AS (
    -- Postgres holds the CHECKs against a new row made from the snapshot's before it sees that the row has moved on, so
    -- every column that a CHECK ties to the state is written from the locked row.
    UPDATE reclaim.refunds SET
        state = verdict.to_state,
        channel_ref = CASE WHEN verdict.channel_ref = '' AND NOT verdict.contradicts THEN args.channel_ref
            ELSE verdict.channel_ref END,
        needs_review = CASE WHEN verdict.issue_id IS NOT NULL THEN verdict.needs_review OR EXISTS (SELECT FROM opened)
            -- what kept it from going on is out of the way where its channel answers within its time
            WHEN verdict.effect IN ('settle', 'release') OR args.source IN ('create', 'query')
                AND verdict.to_state IN ('unknown', 'pending') AND verdict.look_until > verdict.at
            THEN verdict.has_issue ELSE verdict.needs_review END,
        send_count = verdict.send_count,
        first_sent_at = verdict.first_sent_at,
        last_checked_at = CASE WHEN args.source IN ('create', 'query') THEN verdict.at ELSE verdict.last_checked_at END,
        look_count = verdict.look_count + CASE WHEN args.source = 'query' AND args.next_look_us > 0 THEN 1 ELSE 0 END,
        next_look_at = CASE WHEN verdict.to_state NOT IN ('accepted', 'unknown', 'pending') THEN NULL
            WHEN args.next_look_us > 0 THEN verdict.at + args.next_look_us * interval '1 microsecond'
            ELSE verdict.next_look_at END,
        resend_requested = verdict.resend_requested AND verdict.to_state = 'unknown',
        event_seq = verdict.event_seq + CASE WHEN news.told THEN 1 ELSE 0 END,
        last_outcome = CASE WHEN news.told AND (NOT verdict.contradicts OR verdict.effect = 'refunded_elsewhere') THEN args.outcome ELSE verdict.last_outcome END,
        last_code = CASE WHEN news.told AND (NOT verdict.contradicts OR verdict.effect = 'refunded_elsewhere') THEN args.code ELSE verdict.last_code END,
        ended_by = CASE WHEN verdict.effect IN ('settle', 'release', 'reverse')
                OR verdict.effect = 'record' AND args.outcome = verdict.state AND verdict.ended_by = 'person'
            THEN args.source ELSE verdict.ended_by END,
        succeeded_at = CASE WHEN verdict.effect = 'settle' THEN verdict.at ELSE verdict.succeeded_at END,
        returned_at = CASE WHEN verdict.effect IN ('release', 'reverse') THEN verdict.at ELSE verdict.returned_at END,
        updated_at = CASE WHEN news.told THEN verdict.at ELSE verdict.updated_at END
    FROM verdict, args, news
    WHERE refunds.tenant_id = verdict.tenant_id AND refunds.refund_id = verdict.refund_id
        AND (news.told OR args.source IN ('create', 'query'))
    RETURNING refunds.*
), told AS (
    INSERT INTO reclaim.refund_events (tenant_id, refund_id, seq, source, from_state, to_state, outcome, channel_ref,
        amount, currency, code, evidence, sends, actor, observed_at)
    SELECT changed.tenant_id, changed.refund_id, changed.event_seq, args.source, verdict.state, verdict.to_state,
        args.outcome, args.channel_ref, CASE WHEN args.currency <> '' THEN args.amount END, nullif(args.currency, ''),
        args.code, args.evidence, args.sends, args.actor, coalesce(args.observed_at, verdict.at)
    FROM changed, verdict, args, news WHERE news.told
), held AS MATERIALIZED (
    -- the order's CHECKs too are first held against the snapshot's row
    SELECT * FROM reclaim.orders
    WHERE orders.tenant_id = @tenant_id AND orders.order_id = (SELECT verdict.order_id FROM verdict
        WHERE verdict.effect IN ('settle', 'release', 'reverse'))
    FOR UPDATE
), counted AS (
    UPDATE reclaim.orders SET
        reserved = held.reserved - CASE WHEN verdict.effect IN ('settle', 'release') THEN verdict.amount ELSE 0 END,
        refunded = held.refunded
            + CASE verdict.effect WHEN 'settle' THEN verdict.amount WHEN 'reverse' THEN -verdict.amount ELSE 0 END,
        reserved_credits = held.reserved_credits
            - CASE WHEN verdict.effect IN ('settle', 'release') THEN verdict.credits ELSE 0 END,
        refunded_credits = held.refunded_credits
            + CASE verdict.effect WHEN 'settle' THEN verdict.credits WHEN 'reverse' THEN -verdict.credits ELSE 0 END
    FROM verdict, held
    WHERE orders.tenant_id = held.tenant_id AND orders.order_id = held.order_id
    RETURNING orders.order_id
), moved AS (
    -- after the order, as everywhere: whoever accepts a refund has the order's lock when asking for the account's
    UPDATE reclaim.accounts SET balance = accounts.balance + verdict.credits, seq = accounts.seq + 1
    FROM verdict, counted
    WHERE verdict.returns AND accounts.tenant_id = verdict.tenant_id AND accounts.account_id = verdict.account_id
    RETURNING accounts.tenant_id, accounts.account_id, accounts.balance, accounts.seq
), entry AS (
    INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, job_id, order_id,
        refund_id, reason)
    SELECT moved.tenant_id, moved.account_id, moved.seq, 'payout_return', verdict.credits, moved.balance, verdict.job_id,
        verdict.order_id, verdict.refund_id,
        CASE WHEN verdict.effect = 'reverse' THEN 'the bank took the refund back' ELSE 'the refund sent no money' END
            || CASE WHEN args.code <> '' THEN ' (' || args.code || ')' ELSE '' END
    FROM moved, verdict, args
)
SELECT
    CASE WHEN verdict.contradicts THEN 'contradiction'
        WHEN verdict.effect = 'record' THEN 'already' ELSE 'applied' END::text AS answer,
    verdict.effect::text AS effect,
    coalesce(changed.state, verdict.state)::text AS state,
    coalesce(changed.needs_review, verdict.needs_review)::boolean AS needs_review
FROM verdict LEFT JOIN changed ON true;
