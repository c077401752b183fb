-- +goose Up

-- The outbox is taken from by kind and tenant in turn: the first due rows of each are found without reading past the others.
CREATE INDEX IF NOT EXISTS outbox_turns ON reclaim.outbox (kind, tenant_id, next_attempt_at) WHERE delivered_at IS NULL;
DROP INDEX IF EXISTS reclaim.outbox_due;
-- What has had its retention is found without reading what is kept.
CREATE INDEX IF NOT EXISTS outbox_delivered ON reclaim.outbox (delivered_at) WHERE delivered_at IS NOT NULL;
