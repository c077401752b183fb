-- The proofs of an audit: each reads a table once and answers sums that are equal where the ledger is sound. They name
-- nothing; where one fails, the checks of audit.sql say what is broken. Hashes are under a secret that is drawn anew for
-- each audit, so that nobody can prepare rows whose hashes are those of others. An empty @only_tenant looks at all tenants.

-- name: ProveEntries :one
-- Entries are steps from a place (account, seq, balance) to the next: each arrives where another, or the account's row,
-- begins. What they moved must be what jobs, refunds, operations and orders say.
SELECT count(*) AS entries, count(*) FILTER (WHERE fits IS NOT TRUE) AS unfit,
    coalesce(sum(arrives), 0)::text AS arrives, coalesce(sum(begins), 0)::text AS begins,
    coalesce(sum(moved), 0)::text AS moved, coalesce(sum(operated), 0)::text AS operated,
    coalesce(sum(bought), 0)::text AS bought
FROM (
    SELECT
        reclaim.entry_fits(type, seq, amount, balance_after, job_id, order_id, refund_id, reason) AS fits,
        reclaim.number_print(balance_after, hashint8extended(seq, account)) AS arrives,
        CASE WHEN seq > 0 AND amount BETWEEN -4611686018427387904 AND 4611686018427387904
                AND balance_after BETWEEN -4611686018427387904 AND 4611686018427387904
            THEN reclaim.number_print(balance_after - amount, hashint8extended(seq - 1, account)) END AS begins,
        CASE type
            WHEN 'charge' THEN hashtextextended(job_id, reclaim.number_print(amount, hashint8extended(1, account)))
            WHEN 'refund' THEN hashtextextended(job_id, reclaim.number_print(amount, hashint8extended(2, account)))
            WHEN 'reclaim' THEN hashtextextended(job_id, reclaim.number_print(amount, hashint8extended(3, account)))
            WHEN 'payout' THEN hashtextextended(refund_id, hashtextextended(order_id, hashtextextended(coalesce(job_id, ''),
                reclaim.number_print(amount, hashint8extended(4, account)))))
            WHEN 'payout_return' THEN hashtextextended(refund_id, hashtextextended(order_id, hashtextextended(
                coalesce(job_id, ''), reclaim.number_print(amount, hashint8extended(5, account))))) END AS moved,
        CASE WHEN type = 'topup' AND order_id IS NOT NULL
                THEN hashtextextended(order_id, hashint8extended(seq,
                    hashtextextended(tenant_id, hashint8extended(8, @secret::bigint))))
            WHEN type = 'topup' THEN hashint8extended(seq, hashint8extended(6, account))
            WHEN type = 'adjust' THEN hashint8extended(seq, hashint8extended(7, account)) END AS operated,
        CASE WHEN order_id IS NOT NULL AND type = 'topup'
            THEN hashtextextended(order_id, reclaim.number_print(amount, hashint8extended(9, account))) END AS bought
    FROM (
        SELECT tenant_id, seq, type, amount, balance_after, job_id, order_id, refund_id, reason,
            hashtextextended(account_id, hashtextextended(tenant_id, @secret::bigint)) AS account
        FROM reclaim.ledger_entries
        WHERE @only_tenant::text = '' OR tenant_id = @only_tenant
    ) AS keyed
) AS entry;

-- name: ProveAccounts :one
-- An account's row leads from the place where its newest entry arrived back to where the first began.
SELECT count(*) AS accounts,
    coalesce(sum(reclaim.number_print(0, hashint8extended(0, account))), 0)::text AS arrives,
    coalesce(sum(reclaim.number_print(balance, hashint8extended(seq, account))), 0)::text AS begins
FROM (
    SELECT seq, balance, hashtextextended(account_id, hashtextextended(tenant_id, @secret::bigint)) AS account
    FROM reclaim.accounts
    WHERE @only_tenant::text = '' OR tenant_id = @only_tenant
) AS keyed;

-- name: ProveJobs :one
-- The entries that each job's row says there are. The account of a job that has an entry exists if the entry's does.
SELECT count(*) AS jobs, count(*) FILTER (WHERE fits IS NOT TRUE) AS unfit,
    (coalesce(sum(charged), 0) + coalesce(sum(refunded), 0) + coalesce(sum(reclaimed), 0))::text AS moved
FROM (
    SELECT
        reclaim.job_fits(state, cost, is_refunded, refunded_at, is_reclaimed, reclaimed_at, delivered_at, output)
            AND (cost > 0 OR EXISTS (SELECT FROM reclaim.accounts AS payer
                WHERE payer.tenant_id = keyed.tenant_id AND payer.account_id = keyed.account_id)) AS fits,
        CASE WHEN cost > 0 THEN hashtextextended(job_id, reclaim.number_print(-cost, hashint8extended(1, account))) END
            AS charged,
        CASE WHEN cost > 0 AND is_refunded
            THEN hashtextextended(job_id, reclaim.number_print(cost, hashint8extended(2, account))) END AS refunded,
        CASE WHEN cost > 0 AND is_reclaimed
            THEN hashtextextended(job_id, reclaim.number_print(-cost, hashint8extended(3, account))) END AS reclaimed
    FROM (
        SELECT tenant_id, account_id, job_id, state, cost, is_refunded, refunded_at, is_reclaimed, reclaimed_at,
            delivered_at, output, hashtextextended(account_id, hashtextextended(tenant_id, @secret::bigint)) AS account
        FROM reclaim.jobs
        WHERE @only_tenant::text = '' OR tenant_id = @only_tenant
    ) AS keyed
) AS job;

-- name: ProveOperations :one
-- The entry that each operation claims to have made. Whether an order exists is proven with its entry.
SELECT count(*) AS operations,
    count(*) FILTER (WHERE CASE kind
        WHEN 'refund' THEN NOT EXISTS (SELECT FROM reclaim.refunds AS refund
            WHERE refund.tenant_id = past.tenant_id AND refund.refund_id = past.subject_id)
        ELSE entry_seq IS NULL OR kind NOT IN ('topup', 'adjust', 'order') END) AS unfit,
    coalesce(sum(CASE kind
        WHEN 'order' THEN hashtextextended(subject_id, hashint8extended(entry_seq,
            hashtextextended(tenant_id, hashint8extended(8, @secret::bigint))))
        WHEN 'topup' THEN hashint8extended(entry_seq,
            hashint8extended(6, hashtextextended(subject_id, hashtextextended(tenant_id, @secret::bigint))))
        WHEN 'adjust' THEN hashint8extended(entry_seq,
            hashint8extended(7, hashtextextended(subject_id, hashtextextended(tenant_id, @secret::bigint)))) END), 0)::text
        AS operated
FROM reclaim.operations AS past
WHERE @only_tenant::text = '' OR past.tenant_id = @only_tenant;

-- name: ProveOrders :one
-- Each order's topup, and the sums of its refunds: these are weighed, each order with a hash of its own, so that one
-- order's excess does not make up for another's lack.
SELECT count(*) AS orders,
    count(*) FILTER (WHERE reserved < 0 OR refunded < 0 OR reserved::numeric + refunded > paid
        OR reserved_credits < 0 OR refunded_credits < 0 OR reserved_credits::numeric + refunded_credits > credits) AS unfit,
    coalesce(sum(hashtextextended(order_id, reclaim.number_print(credits, hashint8extended(9, account)))), 0)::text
        AS bought,
    coalesce(sum(weight * reserved), 0)::text AS reserved,
    coalesce(sum(weight * reserved_credits), 0)::text AS reserved_credits,
    coalesce(sum(weight * refunded), 0)::text AS refunded,
    coalesce(sum(weight * refunded_credits), 0)::text AS refunded_credits
FROM (
    SELECT order_id, paid, credits, reserved, reserved_credits, refunded, refunded_credits,
        hashtextextended(account_id, hashtextextended(tenant_id, @secret::bigint)) AS account,
        hashtextextended(order_id, hashtextextended(tenant_id, hashint8extended(10, @secret::bigint)))::numeric AS weight
    FROM reclaim.orders
    WHERE @only_tenant::text = '' OR tenant_id = @only_tenant
) AS keyed;

-- name: ProveRefunds :one
-- Each channel refund's row against its order and job, the entries and the last event that it says there are, and no two
-- refunds of a channel with one reference.
SELECT count(*) AS refunds, count(*) FILTER (WHERE fits IS NOT TRUE) AS unfit,
    (coalesce(sum(paid_out), 0) + coalesce(sum(came_back), 0))::text AS moved,
    coalesce(sum(weight * amount) FILTER (WHERE state IN ('accepted', 'unknown', 'pending')), 0)::text AS reserved,
    coalesce(sum(weight * credits) FILTER (WHERE state IN ('accepted', 'unknown', 'pending')), 0)::text AS reserved_credits,
    coalesce(sum(weight * amount) FILTER (WHERE state = 'succeeded'), 0)::text AS refunded,
    coalesce(sum(weight * credits) FILTER (WHERE state = 'succeeded'), 0)::text AS refunded_credits,
    coalesce(sum(arrives), 0)::text AS arrives, coalesce(sum(begins), 0)::text AS begins,
    (SELECT count(*) FROM (
        SELECT FROM reclaim.refunds AS known
        JOIN reclaim.orders AS source ON source.tenant_id = known.tenant_id AND source.order_id = known.order_id
        WHERE known.channel_ref <> '' AND (@only_tenant::text = '' OR known.tenant_id = @only_tenant)
        GROUP BY source.channel, known.channel_ref HAVING count(*) > 1) AS shared) AS shared_references
FROM (
    SELECT refund.state, refund.amount, refund.credits,
        reclaim.refund_fits(refund.state, refund.amount, refund.credits, refund.channel_ref, refund.send_count,
                refund.first_sent_at, refund.succeeded_at, refund.returned_at)
            AND source.currency = refund.currency
            AND (refund.job_id IS NULL
                OR job.account_id = source.account_id AND job.is_refunded AND job.cost = refund.credits)
            AND (refund.state <> 'reversed' OR EXISTS (SELECT FROM reclaim.issues AS told
                WHERE told.tenant_id = refund.tenant_id AND told.kind = 'refund_reversed' AND told.subject_kind = 'refund'
                    AND told.subject_id = refund.refund_id)) AS fits,
        CASE WHEN refund.credits > 0 THEN hashtextextended(refund.refund_id, hashtextextended(refund.order_id,
            hashtextextended(coalesce(refund.job_id, ''),
                reclaim.number_print(-refund.credits, hashint8extended(4, keys.account))))) END AS paid_out,
        CASE WHEN refund.credits > 0 AND refund.state IN ('failed', 'canceled', 'reversed')
            THEN hashtextextended(refund.refund_id, hashtextextended(refund.order_id,
                hashtextextended(coalesce(refund.job_id, ''),
                    reclaim.number_print(refund.credits, hashint8extended(5, keys.account))))) END AS came_back,
        keys.weight,
        hashtextextended('', hashint8extended(0, keys.refund)) AS arrives,
        hashtextextended(refund.state, hashint8extended(refund.event_seq, keys.refund)) AS begins
    FROM reclaim.refunds AS refund
    LEFT JOIN reclaim.orders AS source ON source.tenant_id = refund.tenant_id AND source.order_id = refund.order_id
    LEFT JOIN reclaim.jobs AS job ON job.tenant_id = refund.tenant_id AND job.job_id = refund.job_id
    CROSS JOIN LATERAL (SELECT
        hashtextextended(source.account_id, hashtextextended(refund.tenant_id, @secret::bigint)) AS account,
        hashtextextended(refund.order_id, hashtextextended(refund.tenant_id, hashint8extended(10, @secret::bigint)))::numeric
            AS weight,
        hashtextextended(refund.refund_id, hashtextextended(refund.tenant_id, hashint8extended(11, @secret::bigint)))
            AS refund) AS keys
    WHERE @only_tenant = '' OR refund.tenant_id = @only_tenant
) AS judged;

-- name: ProveRefundEvents :one
-- Events are steps from a place (refund, seq, state) to the next, as entries are.
SELECT count(*) FILTER (WHERE seq NOT BETWEEN 1 AND 2147483647) AS unfit,
    coalesce(sum(hashtextextended(to_state, hashint8extended(seq, refund))), 0)::text AS arrives,
    coalesce(sum(hashtextextended(from_state, hashint8extended(seq - 1, refund))) FILTER (WHERE seq > 0), 0)::text AS begins
FROM (
    SELECT seq, from_state, to_state,
        hashtextextended(refund_id, hashtextextended(tenant_id, hashint8extended(11, @secret::bigint))) AS refund
    FROM reclaim.refund_events
    WHERE @only_tenant::text = '' OR tenant_id = @only_tenant
) AS keyed;
