-- name: AddOrder :one
-- Registers a payment that came through a channel and tops the account up with its credits, once for each operation key
-- and once for each payment of a channel. Two at the same instant: one gets 23505, is undone whole, and is answered
-- from the other when repeated.
WITH args AS (
    SELECT @tenant_id::text AS tenant_id, @order_id::text AS order_id, @account_id::text AS account_id,
        @channel::text AS channel, @payment::text AS payment, @currency::text AS currency, @paid::bigint AS paid,
        @credits::bigint AS credits, @asset::text AS asset, @actor::text AS actor, @key::text AS key,
        @fingerprint::text AS fingerprint, @reason::text AS reason, @not_after::timestamptz AS not_after
), known AS (
    SELECT * FROM reclaim.operations AS past
    WHERE past.tenant_id = @tenant_id AND past.actor = @actor AND past.kind = 'order' AND past.key = @key
), twin AS (
    SELECT orders.*, (orders.order_id, orders.account_id, orders.channel, orders.channel_payment_id, orders.currency,
            orders.paid, orders.credits) = (args.order_id, args.account_id, args.channel, args.payment, args.currency,
            args.paid, args.credits) AS same
    FROM args JOIN reclaim.orders ON orders.tenant_id = args.tenant_id
        AND (orders.order_id = args.order_id OR orders.channel = args.channel AND orders.channel_payment_id = args.payment)
    ORDER BY same LIMIT 1
), moved AS (
    INSERT INTO reclaim.accounts AS account (tenant_id, account_id, asset, balance, seq)
    SELECT args.tenant_id, args.account_id, args.asset, args.credits, 1 FROM args
    WHERE NOT EXISTS (SELECT FROM known) AND NOT EXISTS (SELECT FROM twin) AND clock_timestamp() <= args.not_after
    ON CONFLICT (tenant_id, account_id) DO UPDATE
        SET balance = account.balance + excluded.balance, seq = account.seq + 1
        WHERE account.asset = excluded.asset AND account.balance <= 9007199254740991 - excluded.balance
    RETURNING account.tenant_id, account.account_id, account.balance, account.seq
), created AS (
    INSERT INTO reclaim.orders (tenant_id, order_id, account_id, channel, channel_payment_id, currency, paid, credits)
    SELECT args.tenant_id, args.order_id, args.account_id, args.channel, args.payment, args.currency, args.paid,
        args.credits
    FROM moved, args
), entry AS (
    INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, order_id, reason)
    SELECT moved.tenant_id, moved.account_id, moved.seq, 'topup', args.credits, moved.balance, args.order_id, args.reason
    FROM moved, args
    RETURNING *
), claimed AS (
    INSERT INTO reclaim.operations (tenant_id, actor, kind, key, fingerprint, subject_id, entry_seq)
    SELECT moved.tenant_id, args.actor, 'order', args.key, args.fingerprint, args.order_id, moved.seq
    FROM moved, args
)
SELECT
    CASE
        WHEN known.fingerprint = args.fingerprint THEN 'already'
        WHEN known.key IS NOT NULL THEN 'conflict'
        WHEN twin.same THEN 'already'
        WHEN twin.order_id = args.order_id THEN 'other_order'
        WHEN twin.order_id IS NOT NULL THEN 'payment_taken'
        WHEN entry.seq IS NOT NULL THEN 'applied'
        WHEN account.account_id IS NULL THEN 'too_late'
        WHEN account.asset <> args.asset THEN 'other_asset'
        WHEN account.balance > 9007199254740991 - args.credits THEN 'overflow'
        ELSE 'too_late' END::text AS answer,
    coalesce(twin.order_id, args.order_id)::text AS order_id,
    coalesce(account.asset, args.asset)::text AS asset,
    coalesce(entry.balance_after, account.balance, 0)::bigint AS balance
FROM args
LEFT JOIN known ON true
LEFT JOIN twin ON true
LEFT JOIN entry ON true
LEFT JOIN reclaim.accounts AS account ON account.tenant_id = args.tenant_id AND account.account_id = args.account_id;

-- name: GetOrder :one
SELECT * FROM reclaim.orders WHERE tenant_id = @tenant_id AND order_id = @order_id;

-- name: LockOrder :one
-- Makes whatever is accepted on the order wait for this transaction: what is left of it stays so until the end. The next
-- statement sees all that came before.
SELECT * FROM reclaim.orders WHERE tenant_id = @tenant_id AND order_id = @order_id FOR UPDATE;
