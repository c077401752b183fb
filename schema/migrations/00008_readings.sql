-- +goose Up

-- What was written lately is found without reading the rest: both tables only grow, so that the time of a row says where it
-- lies, and an index of block ranges is touched once for each range, not for each row.
CREATE INDEX IF NOT EXISTS ledger_entries_written ON reclaim.ledger_entries USING brin (created_at)
    WITH (pages_per_range = 32, autosummarize = on);
CREATE INDEX IF NOT EXISTS refund_events_written ON reclaim.refund_events USING brin (created_at)
    WITH (pages_per_range = 32, autosummarize = on);
-- What a person must look at is few among many.
CREATE INDEX IF NOT EXISTS refunds_review ON reclaim.refunds (tenant_id, refund_id) WHERE needs_review;
