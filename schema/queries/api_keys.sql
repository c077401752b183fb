-- name: AddAPIKey :one
INSERT INTO reclaim.api_keys (key_id, tenant_id, actor, scopes, secret_hash)
VALUES (@key_id, @tenant_id, @actor, @scopes::text[], @secret_hash)
RETURNING created_at;

-- name: GetAPIKeys :many
SELECT * FROM reclaim.api_keys WHERE key_id = ANY(@key_ids::text[]);

-- name: ListAPIKeys :many
SELECT key_id, actor, scopes, created_at, revoked_at FROM reclaim.api_keys
WHERE tenant_id = @tenant_id ORDER BY created_at DESC, key_id LIMIT @at_most;

-- name: RevokeAPIKey :one
-- Takes the key's rights away, for good. Revoking it again answers when that was. No row: the tenant has no such key.
UPDATE reclaim.api_keys SET revoked_at = coalesce(revoked_at, clock_timestamp())
WHERE key_id = @key_id AND tenant_id = @tenant_id
RETURNING revoked_at::timestamptz AS revoked_at;
