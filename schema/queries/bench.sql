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

-- name: FillLedger :exec
-- Makes @rounds * @accounts * 15 entries as the guards would have: @accounts accounts whose name begins with @prefix, each
-- with @rounds rounds of a top-up of 80 credits and ten jobs of cost 10, of which seven are delivered, two refunded and one
-- delivered after its refund. The entries of the accounts lie mixed, as they come. For measuring only.
WITH step (place, type, amount, balance, job) AS (
    VALUES (1, 'topup', 80, 80, NULL), (2, 'charge', -10, 70, 1), (3, 'charge', -10, 60, 2), (4, 'charge', -10, 50, 3),
        (5, 'charge', -10, 40, 4), (6, 'charge', -10, 30, 5), (7, 'charge', -10, 20, 6), (8, 'charge', -10, 10, 7),
        (9, 'charge', -10, 0, 8), (10, 'refund', 10, 10, 8), (11, 'charge', -10, 0, 9), (12, 'refund', 10, 10, 9),
        (13, 'charge', -10, 0, 10), (14, 'refund', 10, 10, 10), (15, 'reclaim', -10, 0, 10)
), account AS (
    INSERT INTO reclaim.accounts (tenant_id, account_id, asset, balance, seq)
    SELECT @tenant_id::text, @prefix::text || n, 'CREDIT', 0, 15 * @rounds::bigint
    FROM generate_series(1, @accounts::bigint) AS n
), round AS MATERIALIZED (
    SELECT r, @prefix || n AS account_id, @prefix || n || '-' || r AS name
    FROM generate_series(1, @rounds) AS r CROSS JOIN generate_series(1, @accounts) AS n
), claimed AS (
    INSERT INTO reclaim.operations (tenant_id, actor, kind, key, fingerprint, subject_id, entry_seq)
    SELECT @tenant_id, 'bench', 'topup', name, 'bench', account_id, 15 * (r - 1) + 1 FROM round
), done AS (
    INSERT INTO reclaim.jobs (tenant_id, job_id, account_id, cost, fingerprint, state, is_refunded, refunded_at, is_reclaimed,
        reclaimed_at, delivered_at, attempts, output, spec)
    SELECT @tenant_id, round.name || '-' || job, round.account_id, 10, repeat('f', 64),
        CASE WHEN job IN (8, 9) THEN 'failed' ELSE 'succeeded' END, job > 7, CASE WHEN job > 7 THEN now() END, job = 10,
        CASE WHEN job = 10 THEN now() END, CASE WHEN job NOT IN (8, 9) THEN now() END, 1,
        CASE WHEN job NOT IN (8, 9) THEN '{"frames":720}' END, '{"work":"' || repeat('x', 300) || '"}'
    FROM round CROSS JOIN generate_series(1, 10) AS job
)
INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, job_id, reason)
SELECT @tenant_id, round.account_id, 15 * (round.r - 1) + step.place, step.type, step.amount, step.balance,
    round.name || '-' || step.job, 'measuring'
FROM round CROSS JOIN step;

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
