-- name: OpenStatement :one
-- The account and where a period begins and ends in it: the entries of [@from_at, @to_at) are those after opening_seq up to
-- closing_seq. Without from_at the period begins before the first entry; without to_at it ends with the newest one.
--
-- An account's entries are made one after another under its row lock, so created_at follows seq, but for a clock that
-- stepped back. Each edge is therefore made one number, by going down the powers of two: a step is taken where its entry
-- exists and is older than the edge. An earlier edge never takes a step that a later one refuses at the same place, so
-- edges in order give numbers in order, whatever the clock did, and adjacent periods share every entry out exactly. Steps
-- do not depend on the newest seq, and an entry that is not older than the edge changes none: writes leave an edge where
-- it is. Each step is one look-up by the primary key. It is a scalar subquery so that no plan can hash the account's entries.
WITH RECURSIVE args AS (
    SELECT @tenant_id::text AS tenant_id, @account_id::text AS account_id,
        sqlc.narg('from_at')::timestamptz AS from_at, sqlc.narg('to_at')::timestamptz AS to_at
), descent AS (
    SELECT edge.is_end, edge.at, 0::bigint AS pos, 4611686018427387904::bigint AS step
    FROM (
        SELECT false AS is_end, args.from_at AS at FROM args UNION ALL SELECT true, args.to_at FROM args
    ) AS edge
    WHERE edge.at IS NOT NULL
    UNION ALL
    SELECT descent.is_end, descent.at,
        CASE WHEN (
            SELECT entry.created_at < descent.at FROM reclaim.ledger_entries AS entry
            WHERE entry.tenant_id = @tenant_id AND entry.account_id = @account_id AND entry.seq = descent.pos + descent.step
        ) THEN descent.pos + descent.step ELSE descent.pos END,
        descent.step / 2
    FROM descent
    WHERE descent.step > 0
), bounds AS (
    SELECT account.*, coalesce(first.pos, 0) AS opening_seq,
        CASE WHEN args.to_at IS NULL THEN account.seq ELSE coalesce(last.pos, 0) END AS closing_seq
    FROM args
    JOIN reclaim.accounts AS account ON account.tenant_id = args.tenant_id AND account.account_id = args.account_id
    LEFT JOIN descent AS first ON first.step = 0 AND NOT first.is_end
    LEFT JOIN descent AS last ON last.step = 0 AND last.is_end
)
SELECT bounds.tenant_id, bounds.account_id, bounds.asset, bounds.created_at,
    bounds.opening_seq::bigint AS opening_seq, bounds.closing_seq::bigint AS closing_seq,
    coalesce(opening.balance_after, 0)::bigint AS opening, coalesce(closing.balance_after, 0)::bigint AS closing
FROM bounds
LEFT JOIN reclaim.ledger_entries AS opening ON opening.tenant_id = bounds.tenant_id
    AND opening.account_id = bounds.account_id AND opening.seq = bounds.opening_seq
LEFT JOIN reclaim.ledger_entries AS closing ON closing.tenant_id = bounds.tenant_id
    AND closing.account_id = bounds.account_id AND closing.seq = bounds.closing_seq;
