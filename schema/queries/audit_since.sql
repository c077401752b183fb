-- An audit of what is new since the last sound one. It only tells whether there is anything to suspect; where there is, the
-- whole ledger is audited, and what a checkpoint knows is named beside.

-- name: AuditPlace :one
-- What tells a later audit whether older rows of the ledger were touched.
SELECT pg_relation_filenode('reclaim.ledger_entries')::bigint AS ledger_file,
    (pg_relation_size('reclaim.ledger_entries') / current_setting('block_size')::bigint)::bigint AS ledger_pages,
    (pg_stat_get_tuples_updated('reclaim.ledger_entries'::regclass)
        + pg_stat_get_tuples_deleted('reclaim.ledger_entries'::regclass))::bigint AS ledger_edits,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next_xid;

-- name: AuditCheckpoint :one
SELECT taken_at, whole_at, ledger_file, ledger_pages, ledger_edits, next_xid FROM reclaim.audit_checkpoint;

-- name: WriteAuditPositions :exec
-- Notes where each account stands in this snapshot, which was found sound.
INSERT INTO reclaim.audit_positions (tenant_id, account_id, seq, balance)
SELECT account.tenant_id, account.account_id, account.seq, account.balance FROM reclaim.accounts AS account
LEFT JOIN reclaim.audit_positions AS known ON known.tenant_id = account.tenant_id AND known.account_id = account.account_id
WHERE (account.seq, account.balance) IS DISTINCT FROM (known.seq, known.balance)
ON CONFLICT (tenant_id, account_id) DO UPDATE SET seq = excluded.seq, balance = excluded.balance;

-- name: WriteAuditCheckpoint :exec
INSERT INTO reclaim.audit_checkpoint (taken_at, whole_at, ledger_file, ledger_pages, ledger_edits, next_xid)
VALUES (@taken_at, @whole_at, @ledger_file, @ledger_pages, @ledger_edits, @next_xid)
ON CONFLICT (is_newest) DO UPDATE SET taken_at = excluded.taken_at, whole_at = excluded.whole_at,
    ledger_file = excluded.ledger_file, ledger_pages = excluded.ledger_pages, ledger_edits = excluded.ledger_edits,
    next_xid = excluded.next_xid;

-- name: AuditGrowth :one
-- How many entries there are by the accounts' rows, and how many of them are new.
SELECT coalesce(sum(account.seq), 0)::bigint AS entries,
    coalesce(sum(greatest(0, account.seq - coalesce(known.seq, 0))), 0)::bigint AS new_entries
FROM reclaim.accounts AS account
LEFT JOIN reclaim.audit_positions AS known ON known.tenant_id = account.tenant_id AND known.account_id = account.account_id;

-- name: AuditSince :one
-- Counts what is new since the checkpoint, and what of it, or of what it touches, is not right: entries of accounts that
-- moved, the jobs, orders and refunds that these name or that are open, and operations and refund events that were written
-- @since an instant which lies somewhat before the checkpoint.
WITH changed AS MATERIALIZED (
    SELECT account.tenant_id, account.account_id, account.seq, account.balance, coalesce(known.seq, 0) AS from_seq,
        coalesce(known.balance, 0) AS from_balance
    FROM reclaim.accounts AS account
    LEFT JOIN reclaim.audit_positions AS known ON known.tenant_id = account.tenant_id
        AND known.account_id = account.account_id
    WHERE (account.seq, account.balance) IS DISTINCT FROM (coalesce(known.seq, 0), coalesce(known.balance, 0))
), fresh AS MATERIALIZED (
    SELECT entry.tenant_id, entry.account_id, entry.seq, entry.type, entry.amount, entry.job_id, entry.order_id,
        entry.refund_id,
        entry.fits AND entry.seq = lag(entry.seq, 1, changed.from_seq) OVER account + 1
            AND entry.balance_after::numeric
                = lag(entry.balance_after, 1, changed.from_balance) OVER account + entry.amount::numeric
            AND (lead(entry.seq) OVER account IS NOT NULL
                OR entry.seq = changed.seq AND entry.balance_after = changed.balance) AS fits
    FROM changed
    CROSS JOIN LATERAL (
        SELECT e.tenant_id, e.account_id, e.seq, e.type, e.amount, e.balance_after, e.job_id, e.order_id, e.refund_id,
            reclaim.entry_fits(e.type, e.seq, e.amount, e.balance_after, e.job_id, e.order_id, e.refund_id, e.reason) AS fits
        FROM reclaim.ledger_entries AS e
        WHERE e.tenant_id = changed.tenant_id AND e.account_id = changed.account_id AND e.seq > changed.from_seq
        OFFSET 0
    ) AS entry
    WINDOW account AS (PARTITION BY entry.tenant_id, entry.account_id ORDER BY entry.seq)
), standing AS (
    SELECT changed.from_balance = stands.balance_after AS fits
    FROM changed
    LEFT JOIN LATERAL (
        SELECT e.balance_after FROM reclaim.ledger_entries AS e
        WHERE e.tenant_id = changed.tenant_id AND e.account_id = changed.account_id AND e.seq = changed.from_seq
        LIMIT 1
    ) AS stands ON true
    WHERE changed.from_seq > 0
), touched AS MATERIALIZED (
    SELECT fresh.tenant_id, fresh.job_id FROM fresh WHERE fresh.job_id IS NOT NULL
    UNION
    SELECT open.tenant_id, open.job_id FROM reclaim.jobs AS open WHERE open.state IN ('running', 'dead_letter')
), job AS (
    SELECT known.fits AND made.entries = made.charges + made.refunds + made.reclaims
        AND made.charges = (known.cost > 0)::integer AND made.refunds = (known.cost > 0 AND known.is_refunded)::integer
        AND made.reclaims = (known.cost > 0 AND known.is_reclaimed)::integer AS fits
    FROM touched
    LEFT JOIN LATERAL (
        SELECT j.account_id, j.cost, j.is_refunded, j.is_reclaimed,
            reclaim.job_fits(j.state, j.cost, j.is_refunded, j.refunded_at, j.is_reclaimed, j.reclaimed_at, j.delivered_at,
                j.output)
                AND EXISTS (SELECT FROM reclaim.accounts AS payer
                    WHERE payer.tenant_id = j.tenant_id AND payer.account_id = j.account_id OFFSET 0) AS fits
        FROM reclaim.jobs AS j WHERE j.tenant_id = touched.tenant_id AND j.job_id = touched.job_id
        LIMIT 1
    ) AS known ON true
    CROSS JOIN LATERAL (
        SELECT count(*) AS entries,
            count(*) FILTER (WHERE e.type = 'charge' AND e.amount = -known.cost::numeric AND e.account_id = known.account_id)
                AS charges,
            count(*) FILTER (WHERE e.type = 'refund' AND e.amount = known.cost AND e.account_id = known.account_id)
                AS refunds,
            count(*) FILTER (WHERE e.type = 'reclaim' AND e.amount = -known.cost::numeric AND e.account_id = known.account_id)
                AS reclaims
        FROM reclaim.ledger_entries AS e
        WHERE e.tenant_id = touched.tenant_id AND e.job_id = touched.job_id AND e.type IN ('charge', 'refund', 'reclaim')
    ) AS made
), named AS MATERIALIZED (
    SELECT past.tenant_id, past.kind, past.subject_id, past.entry_seq FROM reclaim.operations AS past
    WHERE past.created_at >= @since::timestamptz
), unclaimed AS (
    SELECT fresh.seq FROM fresh
    LEFT JOIN named ON named.tenant_id = fresh.tenant_id AND named.entry_seq = fresh.seq
        AND named.subject_id = coalesce(fresh.order_id, fresh.account_id)
        AND named.kind = CASE WHEN fresh.order_id IS NULL THEN fresh.type ELSE 'order' END
    WHERE fresh.type IN ('topup', 'adjust')
    GROUP BY fresh.tenant_id, fresh.account_id, fresh.seq
    HAVING count(named.kind) <> 1
), claim AS (
    SELECT CASE named.kind
        WHEN 'refund' THEN EXISTS (SELECT FROM reclaim.refunds AS r
            WHERE r.tenant_id = named.tenant_id AND r.refund_id = named.subject_id OFFSET 0)
        WHEN 'order' THEN EXISTS (SELECT FROM reclaim.orders AS o
            JOIN reclaim.ledger_entries AS e ON e.tenant_id = o.tenant_id AND e.account_id = o.account_id
                AND e.seq = named.entry_seq AND e.type = 'topup' AND e.order_id = o.order_id AND e.amount = o.credits
            WHERE o.tenant_id = named.tenant_id AND o.order_id = named.subject_id OFFSET 0)
        ELSE EXISTS (SELECT FROM reclaim.ledger_entries AS e
            WHERE e.tenant_id = named.tenant_id AND e.account_id = named.subject_id AND e.seq = named.entry_seq
                AND e.type = named.kind AND e.order_id IS NULL OFFSET 0) END AS fits
    FROM named
), returned AS MATERIALIZED (
    SELECT fresh.tenant_id, fresh.refund_id FROM fresh WHERE fresh.refund_id IS NOT NULL
    UNION
    SELECT open.tenant_id, open.refund_id FROM reclaim.refunds AS open WHERE open.state IN ('accepted', 'unknown', 'pending')
    UNION
    SELECT told.tenant_id, told.refund_id FROM reclaim.refund_events AS told WHERE told.created_at >= @since
), refund AS MATERIALIZED (
    SELECT returned.tenant_id, known.order_id,
        known.fits AND made.entries = made.payouts + made.returns AND made.payouts = (known.credits > 0)::integer
            AND made.returns = (known.credits > 0 AND known.state IN ('failed', 'canceled', 'reversed'))::integer
            AND events.fits AND events.last_seq = known.event_seq AND events.events = known.event_seq
            AND events.last_state = known.state AS fits
    FROM returned
    LEFT JOIN LATERAL (
        SELECT r.order_id, r.job_id, r.credits, r.state, r.event_seq, o.account_id,
            reclaim.refund_fits(r.state, r.amount, r.credits, r.channel_ref, r.send_count, r.first_sent_at, r.succeeded_at,
                    r.returned_at)
                AND o.currency = r.currency
                AND (r.job_id IS NULL OR j.account_id = o.account_id AND j.is_refunded AND j.cost = r.credits)
                AND (r.state <> 'reversed' OR EXISTS (SELECT FROM reclaim.issues AS told
                    WHERE told.tenant_id = r.tenant_id AND told.kind = 'refund_reversed' AND told.subject_kind = 'refund'
                        AND told.subject_id = r.refund_id OFFSET 0))
                AND (r.channel_ref = '' OR NOT EXISTS (SELECT FROM reclaim.refunds AS twin
                    JOIN reclaim.orders AS source ON source.tenant_id = twin.tenant_id AND source.order_id = twin.order_id
                    WHERE twin.channel_ref = r.channel_ref AND twin.channel_ref <> '' AND source.channel = o.channel
                        AND (twin.tenant_id, twin.refund_id) <> (r.tenant_id, r.refund_id) OFFSET 0)) AS fits
        FROM reclaim.refunds AS r
        LEFT JOIN reclaim.orders AS o ON o.tenant_id = r.tenant_id AND o.order_id = r.order_id
        LEFT JOIN reclaim.jobs AS j ON j.tenant_id = r.tenant_id AND j.job_id = r.job_id
        WHERE r.tenant_id = returned.tenant_id AND r.refund_id = returned.refund_id
        LIMIT 1
    ) AS known ON true
    CROSS JOIN LATERAL (
        SELECT count(*) AS entries,
            count(*) FILTER (WHERE e.type = 'payout' AND e.amount = -known.credits::numeric AND e.right_names) AS payouts,
            count(*) FILTER (WHERE e.type = 'payout_return' AND e.amount = known.credits AND e.right_names) AS returns
        FROM (
            SELECT p.type, p.amount, p.account_id = known.account_id AND p.order_id = known.order_id
                AND p.job_id IS NOT DISTINCT FROM known.job_id AS right_names
            FROM reclaim.ledger_entries AS p
            WHERE p.tenant_id = returned.tenant_id AND p.refund_id = returned.refund_id
                AND p.type IN ('payout', 'payout_return')
        ) AS e
    ) AS made
    CROSS JOIN LATERAL (
        SELECT count(*) AS events, max(step.seq) AS last_seq, bool_and(step.follows) AS fits,
            max(step.to_state) FILTER (WHERE step.is_last) AS last_state
        FROM (
            SELECT t.seq, t.to_state, lead(t.seq) OVER refund IS NULL AS is_last,
                t.seq = lag(t.seq, 1, 0::bigint) OVER refund + 1
                    AND t.from_state = lag(t.to_state, 1, '') OVER refund AS follows
            FROM reclaim.refund_events AS t
            WHERE t.tenant_id = returned.tenant_id AND t.refund_id = returned.refund_id
            WINDOW refund AS (ORDER BY t.seq)
        ) AS step
    ) AS events
), bought AS (
    SELECT known.fits AND (known.reserved, known.reserved_credits, known.refunded, known.refunded_credits)
        = (held.reserved, held.reserved_credits, held.refunded, held.refunded_credits) AS fits
    FROM (
        SELECT fresh.tenant_id, fresh.order_id FROM fresh WHERE fresh.order_id IS NOT NULL
        UNION
        SELECT refund.tenant_id, refund.order_id FROM refund WHERE refund.order_id IS NOT NULL
    ) AS concerned
    LEFT JOIN LATERAL (
        SELECT o.reserved, o.reserved_credits, o.refunded, o.refunded_credits,
            o.reserved >= 0 AND o.refunded >= 0 AND o.reserved::numeric + o.refunded <= o.paid AND o.reserved_credits >= 0
                AND o.refunded_credits >= 0 AND o.reserved_credits::numeric + o.refunded_credits <= o.credits AS fits
        FROM reclaim.orders AS o WHERE o.tenant_id = concerned.tenant_id AND o.order_id = concerned.order_id
        LIMIT 1
    ) AS known ON true
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(r.amount) FILTER (WHERE r.state IN ('accepted', 'unknown', 'pending')), 0) AS reserved,
            coalesce(sum(r.credits) FILTER (WHERE r.state IN ('accepted', 'unknown', 'pending')), 0) AS reserved_credits,
            coalesce(sum(r.amount) FILTER (WHERE r.state = 'succeeded'), 0) AS refunded,
            coalesce(sum(r.credits) FILTER (WHERE r.state = 'succeeded'), 0) AS refunded_credits
        FROM reclaim.refunds AS r WHERE r.tenant_id = concerned.tenant_id AND r.order_id = concerned.order_id
    ) AS held
)
SELECT (SELECT count(*) FROM changed) AS accounts, (SELECT count(*) FROM fresh) AS entries,
    (SELECT count(*) FROM job) AS jobs, (SELECT count(*) FROM named) AS operations, (SELECT count(*) FROM refund) AS refunds,
    (SELECT count(*) FROM bought) AS orders,
    ((SELECT count(*) FROM changed WHERE changed.seq <= changed.from_seq)
        + (SELECT count(*) FROM reclaim.audit_positions AS known WHERE NOT EXISTS (SELECT FROM reclaim.accounts AS account
            WHERE account.tenant_id = known.tenant_id AND account.account_id = known.account_id))
        + (SELECT count(*) FROM changed) - (SELECT count(*) FROM (SELECT DISTINCT fresh.tenant_id, fresh.account_id FROM fresh)
            AS moved)
        + (SELECT count(*) FROM standing WHERE fits IS NOT TRUE) + (SELECT count(*) FROM fresh WHERE fits IS NOT TRUE)
        + (SELECT count(*) FROM job WHERE fits IS NOT TRUE) + (SELECT count(*) FROM unclaimed)
        + (SELECT count(*) FROM claim WHERE fits IS NOT TRUE) + (SELECT count(*) FROM refund WHERE fits IS NOT TRUE)
        + (SELECT count(*) FROM bought WHERE fits IS NOT TRUE))::bigint AS suspects;

-- name: CountRewritten :one
-- Entries that the checkpoint covers and that were written after it, among those that lie from a page on.
SELECT count(*) FROM reclaim.entries_written_since(@next_xid::bigint, @from_page::bigint) AS entry(tenant_id, account_id, seq, job_id)
JOIN reclaim.audit_positions AS known ON known.tenant_id = entry.tenant_id AND known.account_id = entry.account_id
    AND known.seq >= entry.seq;

-- name: AuditCovered :many
-- What a checkpoint covers and is not as it was, by entry where one can be named.
WITH broken AS (
    SELECT 'checkpoint_rewritten' AS name, entry.tenant_id, entry.account_id, entry.seq, coalesce(entry.job_id, '') AS job_id,
        'an entry written before the checkpoint, since the account then had entries to ' || known.seq AS expected,
        'one written after it' AS found
    FROM reclaim.entries_written_since(@next_xid::bigint, 0) AS entry(tenant_id, account_id, seq, job_id)
    JOIN reclaim.audit_positions AS known ON known.tenant_id = entry.tenant_id AND known.account_id = entry.account_id
        AND known.seq >= entry.seq
    UNION ALL
    SELECT 'checkpoint_entry', known.tenant_id, known.account_id, known.seq, '',
        format('the entry after which the balance was %s', known.balance),
        CASE WHEN entry.seq IS NULL THEN 'no entry' ELSE format('balance_after %s', entry.balance_after) END
    FROM reclaim.audit_positions AS known
    LEFT JOIN reclaim.ledger_entries AS entry ON entry.tenant_id = known.tenant_id AND entry.account_id = known.account_id
        AND entry.seq = known.seq
    WHERE known.seq > 0 AND entry.balance_after IS DISTINCT FROM known.balance
    UNION ALL
    SELECT 'checkpoint_account', known.tenant_id, known.account_id, 0, '',
        format('seq %s with balance %s, or a later seq', known.seq, known.balance),
        CASE WHEN account.seq IS NULL THEN 'no account' ELSE format('seq %s with balance %s', account.seq, account.balance) END
    FROM reclaim.audit_positions AS known
    LEFT JOIN reclaim.accounts AS account ON account.tenant_id = known.tenant_id AND account.account_id = known.account_id
    WHERE account.seq IS NULL OR account.seq < known.seq OR account.seq = known.seq AND account.balance <> known.balance
), numbered AS (
    SELECT *, count(*) OVER (PARTITION BY name) AS total,
        row_number() OVER (PARTITION BY name ORDER BY tenant_id, account_id, seq) AS place
    FROM broken
)
SELECT name::text AS check_name, total::bigint AS total, tenant_id::text AS tenant_id, account_id::text AS account_id,
    seq::bigint AS seq, job_id::text AS job_id, expected::text AS expected, found::text AS found
FROM numbered WHERE place <= @break_limit::bigint ORDER BY name, place;
