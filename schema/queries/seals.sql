-- name: PrepareSealing :exec
-- Has this transaction's statements planned for their values: how much is new decides how it is found.
SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('jit', 'off', true);

-- name: LockSealing :one
-- Keeps every other sealer from the tenant until the transaction ends. False: another one seals it now.
SELECT pg_try_advisory_xact_lock(hashtextextended('reclaim.ledger_seals ' || @tenant_id::text, 0))::boolean;

-- name: SealHead :one
-- The newest seal of the tenant's chain.
SELECT position, hash FROM reclaim.ledger_seals WHERE tenant_id = @tenant_id ORDER BY position DESC LIMIT 1;

-- name: RecentAccounts :many
-- Accounts that had an entry since an instant, some after another in order.
SELECT DISTINCT tenant_id, account_id FROM reclaim.ledger_entries
WHERE created_at >= @since::timestamptz AND (tenant_id, account_id) > (@after_tenant::text, @after_account::text)
ORDER BY tenant_id, account_id LIMIT @at_most;

-- name: AccountsAfter :many
-- The accounts that follow one in order, each with whether it has entries that are not sealed.
SELECT account.tenant_id::text AS tenant_id, account.account_id::text AS account_id,
    (account.seq > coalesce((SELECT max(seal.seq) FROM reclaim.ledger_seals AS seal
        WHERE seal.tenant_id = account.tenant_id AND seal.account_id = account.account_id), 0))::boolean AS is_unsealed
FROM reclaim.accounts AS account
WHERE (account.tenant_id, account.account_id) > (@after_tenant::text, @after_account::text)
ORDER BY account.tenant_id, account.account_id LIMIT @at_most;

-- name: UnsealedEntries :many
-- The next entries of some of a tenant's accounts after those that are sealed, account by account.
SELECT entry.account_id, entry.seq, entry.type, entry.amount::text AS amount, entry.balance_after::text AS balance_after,
    entry.job_id, entry.order_id, entry.refund_id, entry.reason::text AS reason,
    trunc(extract(epoch FROM entry.created_at) * 1000000)::text AS created_us
FROM unnest(@accounts::text[]) AS wanted(account_id)
CROSS JOIN LATERAL (
    SELECT coalesce(max(seal.seq), 0) AS seq FROM reclaim.ledger_seals AS seal
    WHERE seal.tenant_id = @tenant_id AND seal.account_id = wanted.account_id
) AS sealed
CROSS JOIN LATERAL (
    SELECT e.account_id, e.seq, e.type, e.amount, e.balance_after, e.job_id, e.order_id, e.refund_id, e.reason, e.created_at
    FROM reclaim.ledger_entries AS e
    WHERE e.tenant_id = @tenant_id AND e.account_id = wanted.account_id AND e.seq > sealed.seq
    ORDER BY e.seq LIMIT @at_most
) AS entry
ORDER BY entry.account_id, entry.seq LIMIT @at_most;

-- name: AppendSeals :copyfrom
INSERT INTO reclaim.ledger_seals (tenant_id, position, account_id, seq, hash) VALUES ($1, $2, $3, $4, $5);

-- name: SealedTenants :many
-- The tenants that have a chain, each found by one step in the index.
WITH RECURSIVE tenant AS (
    (SELECT s.tenant_id FROM reclaim.ledger_seals AS s ORDER BY s.tenant_id LIMIT 1)
    UNION ALL
    SELECT following.tenant_id FROM tenant CROSS JOIN LATERAL (
        SELECT s.tenant_id FROM reclaim.ledger_seals AS s WHERE s.tenant_id > tenant.tenant_id ORDER BY s.tenant_id LIMIT 1
    ) AS following
)
SELECT tenant_id::text FROM tenant;

-- name: SealedEntries :many
-- The next seals of a tenant's chain, with their entries as they are now.
SELECT seal.position, seal.account_id, seal.seq, seal.hash, (entry.seq IS NOT NULL)::boolean AS is_there,
    coalesce(entry.type, '')::text AS type, coalesce(entry.amount::text, '')::text AS amount,
    coalesce(entry.balance_after::text, '')::text AS balance_after, entry.job_id, entry.order_id, entry.refund_id,
    coalesce(entry.reason::text, '')::text AS reason,
    coalesce(trunc(extract(epoch FROM entry.created_at) * 1000000)::text, '')::text AS created_us
FROM (
    SELECT s.position, s.account_id, s.seq, s.hash FROM reclaim.ledger_seals AS s
    WHERE s.tenant_id = @tenant_id AND s.position > @after_position ORDER BY s.position LIMIT @at_most
) AS seal
LEFT JOIN reclaim.ledger_entries AS entry ON entry.tenant_id = @tenant_id AND entry.account_id = seal.account_id
    AND entry.seq = seal.seq
ORDER BY seal.position;

-- name: UnsealedBelow :many
-- Entries without a seal on accounts whose later entries have one.
SELECT entry.account_id, entry.seq FROM (
    SELECT s.account_id, max(s.seq) AS seq FROM reclaim.ledger_seals AS s WHERE s.tenant_id = @tenant_id
    GROUP BY s.account_id
) AS sealed
JOIN reclaim.ledger_entries AS entry ON entry.tenant_id = @tenant_id AND entry.account_id = sealed.account_id
    AND entry.seq <= sealed.seq
WHERE NOT EXISTS (SELECT FROM reclaim.ledger_seals AS s
    WHERE s.tenant_id = @tenant_id AND s.account_id = entry.account_id AND s.seq = entry.seq)
ORDER BY entry.account_id, entry.seq LIMIT @at_most;

-- name: CountUnsealed :one
-- How many entries of a tenant are not sealed yet, by the rows of its accounts.
SELECT (coalesce((SELECT sum(seq) FROM reclaim.accounts WHERE accounts.tenant_id = @tenant_id), 0)
    - coalesce((SELECT max(position) FROM reclaim.ledger_seals WHERE ledger_seals.tenant_id = @tenant_id), 0))::bigint;

-- name: ReadUnsealed :one
-- How many entries are not sealed, and how old the oldest of them is that was written within the last hour; an hour where
-- all are older.
SELECT unsealed.entries::bigint AS entries, CASE WHEN unsealed.entries <= 0 THEN 0
    ELSE coalesce((SELECT greatest(0, extract(epoch FROM clock_timestamp() - min(entry.created_at)) * 1000000)
        FROM reclaim.ledger_entries AS entry
        WHERE entry.created_at >= now() - interval '1 hour' AND NOT EXISTS (
            SELECT FROM reclaim.ledger_seals AS s WHERE s.tenant_id = entry.tenant_id AND s.account_id = entry.account_id
                AND s.seq = entry.seq)), 3600000000) END::bigint AS oldest_us
FROM (
    SELECT coalesce(sum(tenant.entries - coalesce(head.position, 0)), 0) AS entries
    FROM (SELECT tenant_id, sum(seq) AS entries FROM reclaim.accounts GROUP BY tenant_id) AS tenant
    LEFT JOIN LATERAL (
        SELECT s.position FROM reclaim.ledger_seals AS s WHERE s.tenant_id = tenant.tenant_id ORDER BY s.position DESC LIMIT 1
    ) AS head ON true
) AS unsealed;
