-- name: AddAPIKey :one
INSERT INTO reclaim.api_keys (key_id, tenant_id, actor, scopes, secret_hash)
VALUES (@key_id, @tenant_id, @actor, @scopes::text[], @secret_hash)
RETURNING created_at;

-- name: GetAPIKeys :many
-- Reads several keys, each with the job of its own tenant that was asked for by it (an empty id for none): one round trip
-- tells who asks and what. Without such a job, job_id is empty. The limits keep the planner from joining whole tables while
-- those are small.
SELECT wanted.key_id::text AS key_id, wanted.job_id::text AS wanted_job, key.tenant_id, key.actor, key.scopes, key.secret_hash,
    key.created_at, key.revoked_at, coalesce(job.job_id, '')::text AS job_id, coalesce(job.account_id, '')::text AS account_id,
    coalesce(job.cost, 0)::bigint AS cost, coalesce(job.state, '')::text AS state,
    coalesce(job.is_refunded, false)::boolean AS is_refunded, job.refunded_at,
    coalesce(job.is_reclaimed, false)::boolean AS is_reclaimed, job.delivered_at, coalesce(job.attempts, 0)::integer AS attempts,
    coalesce(job.cancel_requested, false)::boolean AS cancel_requested, coalesce(job.last_error, '')::text AS last_error,
    coalesce(job.reason, '')::text AS reason, job.output, coalesce(job.created_at, key.created_at)::timestamptz AS job_created_at,
    coalesce(job.updated_at, key.created_at)::timestamptz AS job_updated_at
FROM (SELECT unnest(@key_ids::text[]) AS key_id, unnest(@job_ids::text[]) AS job_id) AS wanted
CROSS JOIN LATERAL (SELECT * FROM reclaim.api_keys WHERE api_keys.key_id = wanted.key_id LIMIT 1) AS key
LEFT JOIN LATERAL (
    SELECT * FROM reclaim.jobs WHERE jobs.tenant_id = key.tenant_id AND jobs.job_id = wanted.job_id LIMIT 1
) AS job ON true;

-- name: ListAPIKeys :many
SELECT key_id, actor, scopes, created_at, revoked_at FROM reclaim.api_keys
WHERE tenant_id = @tenant_id ORDER BY created_at DESC, key_id LIMIT @at_most;

-- name: RevokeAPIKey :one
-- Takes the key's rights away, for good. Revoking it again answers when that was. No row: the tenant has no such key.
UPDATE reclaim.api_keys SET revoked_at = coalesce(revoked_at, clock_timestamp())
WHERE key_id = @key_id AND tenant_id = @tenant_id
RETURNING revoked_at::timestamptz AS revoked_at;
