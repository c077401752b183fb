-- +goose Up

-- What a program shows to be let in over HTTP. The secret itself is told once and kept nowhere: it is 256 random bits, so
-- that one plain hash of it is as good as a slow one.
CREATE TABLE reclaim.api_keys (
    key_id      text        PRIMARY KEY CHECK (key_id ~ '^[a-z0-9]+$' AND octet_length(key_id) <= 40),
    tenant_id   text        NOT NULL
        CHECK (tenant_id ~ '^[A-Za-z0-9._:-]+$' AND octet_length(tenant_id) <= 100 AND tenant_id <> 'unassigned'),
    actor       text        NOT NULL CHECK (actor <> '' AND octet_length(actor) <= 200),
    scopes      text[]      NOT NULL CHECK (cardinality(scopes) > 0 AND scopes <@ ARRAY['jobs:write', 'jobs:read',
        'refunds:write', 'refunds:read', 'accounts:write', 'accounts:read', 'resolve']),
    secret_hash bytea       NOT NULL CHECK (octet_length(secret_hash) = 32),
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    revoked_at  timestamptz
);
CREATE INDEX api_keys_tenant ON reclaim.api_keys (tenant_id, created_at);
GRANT SELECT, INSERT ON reclaim.api_keys TO reclaim_app;
GRANT UPDATE (revoked_at) ON reclaim.api_keys TO reclaim_app;
GRANT SELECT (key_id, tenant_id, actor, scopes, created_at, revoked_at) ON reclaim.api_keys TO reclaim_support;

-- A product that starts jobs inside its own transactions is granted this role and no other: it can add to the outbox, and
-- read or move nothing.
-- +goose StatementBegin
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'reclaim_enqueue') THEN
        BEGIN
            CREATE ROLE reclaim_enqueue NOLOGIN;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;
        END;
    END IF;
END
$$;
-- +goose StatementEnd
GRANT USAGE ON SCHEMA reclaim TO reclaim_enqueue;
GRANT INSERT (kind, tenant_id, subject_id, payload) ON reclaim.outbox TO reclaim_enqueue;
