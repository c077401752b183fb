-- name: FillAccount :exec
-- Makes an account with a history of @entries top-ups of one credit each, as if each had been made by its own
-- operation. For measuring only.
WITH numbers AS (
    SELECT generate_series(1, @entries::bigint) AS n
), account AS (
    INSERT INTO reclaim.accounts (tenant_id, account_id, asset, balance, seq)
    VALUES (@tenant_id, @account_id, 'CREDIT', @entries, @entries)
), claimed AS (
    INSERT INTO reclaim.operations (tenant_id, actor, kind, key, fingerprint, subject_id, entry_seq)
    SELECT @tenant_id, 'bench', 'topup', @account_id || '-' || n, 'bench', @account_id, n FROM numbers
)
INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, reason)
SELECT @tenant_id, @account_id, n, 'topup', 1, n, 'bench' FROM numbers;

-- name: EnqueuedLags :many
-- How long after its writing each enqueued job was started, in microseconds; -1 where it is not yet. For measuring only.
SELECT coalesce(extract(epoch FROM delivered_at - created_at) * 1000000, -1)::bigint AS lag_us
FROM reclaim.outbox
WHERE tenant_id = @tenant_id AND kind = 'start_job' AND starts_with(subject_id, @prefix::text);

-- name: CountDelivered :one
-- How many jobs with the prefix are delivered. For measuring only.
SELECT count(*) FROM reclaim.jobs
WHERE tenant_id = @tenant_id AND starts_with(job_id, @prefix::text) AND delivered_at IS NOT NULL;

-- name: JobBytes :one
-- How much disk space jobs and ledger entries take, indexes included. For measuring only.
SELECT (pg_total_relation_size('reclaim.jobs') + pg_total_relation_size('reclaim.ledger_entries'))::bigint;
