-- name: EnqueueJob :exec
-- Leaves a job for the relay to start, once the caller's own transaction is committed. Run by a product's own login, whose
-- role reclaim_enqueue may do this and nothing else.
INSERT INTO reclaim.outbox (kind, tenant_id, subject_id, payload) VALUES ('start_job', @tenant_id, @job_id, @payload);

-- name: ClaimOutbox :many
-- Takes due rows for a while, beside other relays that do the same: they are due again once the lease has passed, if
-- they are not delivered by then. The starts of refunds come first, since they hold customers' money; within a kind the
-- tenants take turns, so that none waits for another's backlog. Where more tenants wait than rows are asked for, chance
-- decides whose turn it is. The backlog is not read: each step of lanes is one look into an index, and the time is the
-- statement's, which an index can be searched by, where the clock's would be compared with row after row.
WITH RECURSIVE args AS (
    SELECT @at_most::integer AS at_most, @lease_us::bigint AS lease_us
), lanes AS (
    (SELECT kind, tenant_id, next_attempt_at FROM reclaim.outbox WHERE delivered_at IS NULL
    ORDER BY kind, tenant_id, next_attempt_at LIMIT 1)
    UNION ALL
    SELECT following.kind, following.tenant_id, following.next_attempt_at FROM lanes CROSS JOIN LATERAL (
        SELECT o.kind, o.tenant_id, o.next_attempt_at FROM reclaim.outbox AS o
        WHERE o.delivered_at IS NULL AND (o.kind, o.tenant_id) > (lanes.kind, lanes.tenant_id)
        ORDER BY o.kind, o.tenant_id, o.next_attempt_at LIMIT 1
    ) AS following
), turns AS (
    SELECT kind, tenant_id FROM lanes WHERE next_attempt_at <= statement_timestamp()
    ORDER BY kind = 'start_refund' DESC, random() LIMIT (SELECT at_most FROM args)
), locked AS (
    SELECT first.id, first.kind, first.tenant_id, first.next_attempt_at FROM turns CROSS JOIN LATERAL (
        SELECT o.id, o.kind, o.tenant_id, o.next_attempt_at FROM reclaim.outbox AS o
        WHERE o.delivered_at IS NULL AND o.kind = turns.kind AND o.tenant_id = turns.tenant_id
            AND o.next_attempt_at <= statement_timestamp()
        ORDER BY o.next_attempt_at LIMIT (SELECT at_most FROM args) FOR UPDATE SKIP LOCKED
    ) AS first
), due AS (
    SELECT id FROM locked
    ORDER BY kind = 'start_refund' DESC, row_number() OVER (PARTITION BY kind, tenant_id ORDER BY next_attempt_at),
        next_attempt_at
    LIMIT (SELECT at_most FROM args)
)
UPDATE reclaim.outbox SET attempts = outbox.attempts + 1,
    next_attempt_at = clock_timestamp() + args.lease_us * interval '1 microsecond'
FROM due, args WHERE outbox.id = due.id
RETURNING outbox.*;

-- name: DeliverOutbox :exec
UPDATE reclaim.outbox SET delivered_at = clock_timestamp(), last_error = '' WHERE id = @id AND delivered_at IS NULL;

-- name: DeferOutbox :exec
-- Tries the row again after a pause; it stays visible with what went wrong.
WITH args AS (
    SELECT @id::bigint AS id, @last_error::text AS last_error, @pause_us::bigint AS pause_us
)
UPDATE reclaim.outbox SET last_error = args.last_error,
    next_attempt_at = clock_timestamp() + args.pause_us * interval '1 microsecond'
FROM args WHERE outbox.id = args.id AND outbox.delivered_at IS NULL;

-- name: ClearOutbox :execrows
-- Clears delivered rows away that are older than the retention, a bounded number at a time.
WITH args AS (
    SELECT @retention_us::bigint AS retention_us
), done AS (
    SELECT outbox.id FROM reclaim.outbox, args
    WHERE outbox.delivered_at < statement_timestamp() - args.retention_us * interval '1 microsecond'
    LIMIT @at_most
)
DELETE FROM reclaim.outbox WHERE id = ANY (ARRAY(SELECT done.id FROM done));

-- name: OutboxBacklog :one
-- How many rows wait to be delivered, and since when the one that has waited longest.
SELECT count(*) AS waiting,
    coalesce(extract(epoch FROM clock_timestamp() - min(created_at)) * 1000000, 0)::bigint AS oldest_us
FROM reclaim.outbox WHERE delivered_at IS NULL;
