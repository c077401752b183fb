-- name: EnqueueJob :exec
-- Leaves a job for the relay to start, once the caller's own transaction is committed. Run by a product's own login, whose
-- role reclaim_enqueue may do this and nothing else.
INSERT INTO reclaim.outbox (kind, tenant_id, subject_id, payload) VALUES ('start_job', @tenant_id, @job_id, @payload);

-- name: ClaimOutbox :many
-- Takes due rows for a while, beside other relays that do the same: they are due again once the lease has passed, if
-- they are not delivered by then.
WITH args AS (
    SELECT @lease_us::bigint AS lease_us
), due AS (
    SELECT id FROM reclaim.outbox
    WHERE delivered_at IS NULL AND next_attempt_at <= clock_timestamp()
    ORDER BY next_attempt_at LIMIT @at_most FOR UPDATE SKIP LOCKED
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
    WHERE outbox.delivered_at < clock_timestamp() - args.retention_us * interval '1 microsecond'
    LIMIT @at_most
)
DELETE FROM reclaim.outbox USING done WHERE outbox.id = done.id;

-- name: OutboxBacklog :one
-- How many rows wait to be delivered, and since when the one that has waited longest.
SELECT count(*) AS waiting,
    coalesce(extract(epoch FROM clock_timestamp() - min(created_at)) * 1000000, 0)::bigint AS oldest_us
FROM reclaim.outbox WHERE delivered_at IS NULL;
