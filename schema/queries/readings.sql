-- What monitoring reads of the database. Each statement reads only what is open or was written lately, by an index, so that
-- its time does not grow with the history.

-- name: LimitReading :exec
-- Bounds the statements of this transaction: a reading that takes long must not be in the way of money.
SELECT set_config('statement_timeout', @milliseconds::text, true);

-- name: ReadOpenJobs :many
SELECT state, count(*) AS jobs FROM reclaim.jobs WHERE state IN ('running', 'dead_letter') GROUP BY state;

-- name: ReadOpenRefunds :many
-- Refunds that are not final, by state and by whether a person must look, with the age of the oldest.
SELECT state, needs_review, count(*) AS refunds,
    greatest(0, extract(epoch FROM clock_timestamp() - min(created_at)) * 1000000)::bigint AS oldest_us
FROM reclaim.refunds WHERE state IN ('accepted', 'unknown', 'pending') GROUP BY state, needs_review;

-- name: ReadDisputedRefunds :one
-- Final refunds that a person must look at.
SELECT count(*) FROM reclaim.refunds WHERE needs_review AND state NOT IN ('accepted', 'unknown', 'pending');

-- name: ReadOpenIssues :many
SELECT kind, count(*) AS issues FROM reclaim.issues WHERE state = 'open' GROUP BY kind;

-- name: ReadMoneyMoved :many
-- What was written to the ledger from one instant to another, in the accounts' smallest units.
SELECT entry.type, account.asset, (entry.amount > 0)::boolean AS is_credit, count(*) AS entries,
    sum(abs(entry.amount))::double precision AS moved
FROM reclaim.ledger_entries AS entry
JOIN reclaim.accounts AS account ON account.tenant_id = entry.tenant_id AND account.account_id = entry.account_id
WHERE entry.created_at >= @since::timestamptz AND entry.created_at < @until::timestamptz
GROUP BY entry.type, account.asset, is_credit;

-- name: ReadRefundTransitions :many
-- The states that refunds came into from one instant to another.
SELECT to_state, count(*) AS refunds FROM reclaim.refund_events
WHERE created_at >= @since::timestamptz AND created_at < @until::timestamptz AND to_state <> from_state
GROUP BY to_state;
