-- name: TopUpAccount :one
-- Adds credits to an account, which it creates if need be, once for each operation key. Two top-ups under one key at
-- the same instant: one gets 23505, is undone whole, and answers already when repeated.
WITH args AS (
    SELECT @tenant_id::text AS tenant_id, @account_id::text AS account_id, @actor::text AS actor, @key::text AS key,
        @asset::text AS asset, @amount::bigint AS amount, @fingerprint::text AS fingerprint, @reason::text AS reason,
        @not_after::timestamptz AS not_after
), known AS (
    SELECT * FROM reclaim.operations AS past
    WHERE past.tenant_id = @tenant_id AND past.actor = @actor AND past.kind = 'topup' AND past.key = @key
), moved AS (
    INSERT INTO reclaim.accounts AS account (tenant_id, account_id, asset, balance, seq)
    SELECT args.tenant_id, args.account_id, args.asset, args.amount, 1 FROM args
    WHERE NOT EXISTS (SELECT FROM known) AND clock_timestamp() <= args.not_after
    ON CONFLICT (tenant_id, account_id) DO UPDATE
        SET balance = account.balance + excluded.balance, seq = account.seq + 1
        WHERE account.asset = excluded.asset AND account.balance <= 9007199254740991 - excluded.balance
    RETURNING account.tenant_id, account.account_id, account.balance, account.seq
), entry AS (
    INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, reason)
    SELECT moved.tenant_id, moved.account_id, moved.seq, 'topup', args.amount, moved.balance, args.reason
    FROM moved, args
    RETURNING *
), claimed AS (
    INSERT INTO reclaim.operations (tenant_id, actor, kind, key, fingerprint, subject_id, entry_seq)
    SELECT moved.tenant_id, args.actor, 'topup', args.key, args.fingerprint, moved.account_id, moved.seq
    FROM moved, args
)
SELECT
    CASE
        WHEN known.fingerprint = args.fingerprint THEN 'already'
        WHEN known.key IS NOT NULL THEN 'conflict'
        WHEN entry.seq IS NOT NULL THEN 'applied'
        WHEN account.account_id IS NULL THEN 'too_late'
        WHEN account.asset <> args.asset THEN 'other_asset'
        WHEN account.balance > 9007199254740991 - args.amount THEN 'overflow'
        ELSE 'too_late' END::text AS answer,
    coalesce(account.asset, args.asset)::text AS asset,
    coalesce(entry.seq, past.seq, 0)::bigint AS seq,
    coalesce(entry.balance_after, past.balance_after, account.balance, 0)::bigint AS balance_after
FROM args
LEFT JOIN known ON true
LEFT JOIN entry ON true
LEFT JOIN reclaim.accounts AS account ON account.tenant_id = args.tenant_id AND account.account_id = args.account_id
LEFT JOIN reclaim.ledger_entries AS past ON past.tenant_id = known.tenant_id
    AND past.account_id = known.subject_id AND past.seq = known.entry_seq;

-- name: AdjustAccount :one
-- Corrects a balance by a person's decision, up or down and below zero if need be, once for each operation key. The
-- account must exist. Two adjustments under one key at the same instant: one gets 23505 and answers already when
-- repeated.
WITH args AS (
    SELECT @tenant_id::text AS tenant_id, @account_id::text AS account_id, @actor::text AS actor, @key::text AS key,
        @amount::bigint AS amount, @fingerprint::text AS fingerprint, @reason::text AS reason,
        @not_after::timestamptz AS not_after
), known AS (
    SELECT * FROM reclaim.operations AS past
    WHERE past.tenant_id = @tenant_id AND past.actor = @actor AND past.kind = 'adjust' AND past.key = @key
), account AS (
    SELECT * FROM reclaim.accounts
    WHERE accounts.tenant_id = @tenant_id AND accounts.account_id = @account_id
    FOR UPDATE
), verdict AS MATERIALIZED (
    SELECT account.balance, account.asset, CASE
        WHEN known.fingerprint = args.fingerprint THEN 'already'
        WHEN known.key IS NOT NULL THEN 'conflict'
        WHEN account.account_id IS NULL THEN 'unknown_account'
        WHEN clock_timestamp() > args.not_after THEN 'too_late'
        WHEN abs(account.balance::numeric + args.amount) <= 9007199254740991 THEN 'applied'
        -- What moved the account while this statement waited for it may be its own first try: the repeat finds out.
        WHEN account.seq <> seen.seq THEN 'too_late'
        ELSE 'overflow' END AS answer
    FROM args LEFT JOIN known ON true LEFT JOIN account ON true
    LEFT JOIN reclaim.accounts AS seen ON seen.tenant_id = account.tenant_id AND seen.account_id = account.account_id
), moved AS (
    UPDATE reclaim.accounts SET balance = accounts.balance + args.amount, seq = accounts.seq + 1
    FROM verdict, args
    WHERE verdict.answer = 'applied' AND accounts.tenant_id = @tenant_id AND accounts.account_id = @account_id
    RETURNING accounts.tenant_id, accounts.account_id, accounts.balance, accounts.seq
), entry AS (
    INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, reason)
    SELECT moved.tenant_id, moved.account_id, moved.seq, 'adjust', args.amount, moved.balance, args.reason
    FROM moved, args
    RETURNING *
), claimed AS (
    INSERT INTO reclaim.operations (tenant_id, actor, kind, key, fingerprint, subject_id, entry_seq)
    SELECT moved.tenant_id, args.actor, 'adjust', args.key, args.fingerprint, moved.account_id, moved.seq
    FROM moved, args
)
SELECT
    verdict.answer::text AS answer,
    coalesce(verdict.asset, '')::text AS asset,
    coalesce(entry.seq, past.seq, 0)::bigint AS seq,
    coalesce(entry.balance_after, past.balance_after, verdict.balance, 0)::bigint AS balance_after
FROM verdict
LEFT JOIN entry ON true
LEFT JOIN known ON true
LEFT JOIN reclaim.ledger_entries AS past ON past.tenant_id = known.tenant_id
    AND past.account_id = known.subject_id AND past.seq = known.entry_seq;

-- name: GetAccount :one
SELECT * FROM reclaim.accounts WHERE tenant_id = @tenant_id AND account_id = @account_id;

-- name: ListEntries :many
-- One page of an account's entries in the order they were made, after the entry @after_seq.
SELECT * FROM reclaim.ledger_entries
WHERE tenant_id = @tenant_id AND account_id = @account_id AND seq > @after_seq
ORDER BY seq
LIMIT @page_size;
