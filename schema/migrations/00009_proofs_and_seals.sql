-- +goose Up

-- What a whole audit proves by sums of hashes, so that it reads each table once, in any order and by several processes.
-- Each function is one expression that the planner takes into the statement that calls it; what they say of a row must not
-- be stricter than the audit's naming checks, or an audit would be slower than it need be, and not laxer, or it would pass
-- over a break.

-- Whether an entry is right in itself. Where amounts are so large that a balance could overflow, it is left to the checks
-- that compute with numeric.
CREATE OR REPLACE FUNCTION reclaim.entry_fits(type text, seq bigint, amount bigint, balance_after bigint, job_id text,
    order_id text, refund_id text, reason text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE
    WHEN seq NOT BETWEEN 1 AND 2147483647 OR reason = '' OR amount NOT BETWEEN -4611686018427387904 AND 4611686018427387904
        OR balance_after NOT BETWEEN -4611686018427387904 AND 4611686018427387904 THEN false
    WHEN type = 'charge' THEN amount < 0 AND balance_after >= 0 AND job_id <> '' AND order_id IS NULL AND refund_id IS NULL
    WHEN type = 'refund' THEN amount > 0 AND job_id <> '' AND order_id IS NULL AND refund_id IS NULL
    WHEN type = 'reclaim' THEN amount < 0 AND job_id <> '' AND order_id IS NULL AND refund_id IS NULL
    WHEN type = 'topup' THEN amount > 0 AND job_id IS NULL AND refund_id IS NULL
    WHEN type = 'adjust' THEN amount <> 0 AND job_id IS NULL AND order_id IS NULL AND refund_id IS NULL
    WHEN type = 'payout' THEN amount < 0 AND balance_after >= 0 AND order_id <> '' AND refund_id <> ''
    WHEN type = 'payout_return' THEN amount > 0 AND order_id <> '' AND refund_id <> ''
    ELSE false END
$$;

-- Whether a job's row is right in itself.
CREATE OR REPLACE FUNCTION reclaim.job_fits(state text, cost bigint, is_refunded boolean, refunded_at timestamptz,
    is_reclaimed boolean, reclaimed_at timestamptz, delivered_at timestamptz, output text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE
    WHEN cost NOT BETWEEN 0 AND 9007199254740991 OR is_refunded <> (refunded_at IS NOT NULL)
        OR is_reclaimed <> (reclaimed_at IS NOT NULL) THEN false
    WHEN state = 'succeeded' THEN delivered_at IS NOT NULL AND is_reclaimed = is_refunded
    WHEN state = 'running' OR is_refunded AND state IN ('failed', 'canceled', 'written_off', 'dead_letter')
        THEN delivered_at IS NULL AND NOT is_reclaimed AND output IS NULL
    ELSE false END
$$;

-- Whether a channel refund's row is right in itself.
CREATE OR REPLACE FUNCTION reclaim.refund_fits(state text, amount bigint, credits bigint, channel_ref text,
    send_count integer, first_sent_at timestamptz, succeeded_at timestamptz, returned_at timestamptz) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT amount BETWEEN 1 AND 9007199254740991 AND credits BETWEEN 0 AND 9007199254740991
    AND state IN ('accepted', 'unknown', 'pending', 'succeeded', 'failed', 'canceled', 'reversed')
    AND (state IN ('accepted', 'canceled')) = (first_sent_at IS NULL) AND (send_count > 0) = (first_sent_at IS NOT NULL)
    AND (state IN ('succeeded', 'reversed')) = (succeeded_at IS NOT NULL)
    AND (state IN ('failed', 'canceled', 'reversed')) = (returned_at IS NOT NULL)
    AND (state NOT IN ('pending', 'succeeded', 'reversed') OR channel_ref <> '')
$$;

-- The hash of a number under a secret. Postgres' own folds the number's halves into one, so that numbers which anybody can
-- name have the same hash under every secret: the upper half is mixed into the secret.
CREATE OR REPLACE FUNCTION reclaim.number_print(number bigint, secret bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT hashint8extended(number, secret # (number >> 31)) $$;

-- What a whole audit, and each later one that builds on it, found sound: the newest entry of each account and the balance
-- after it.
CREATE TABLE IF NOT EXISTS reclaim.audit_positions (
    tenant_id  text   NOT NULL,
    account_id text   NOT NULL,
    seq        bigint NOT NULL,
    balance    bigint NOT NULL,
    PRIMARY KEY (tenant_id, account_id)
) WITH (fillfactor = 70);

-- When that was, and what told that nobody has touched the ledger's older rows: the file and the pages that held them, the
-- first transaction that was not over then, and how many rows Postgres has counted as changed or deleted.
CREATE TABLE IF NOT EXISTS reclaim.audit_checkpoint (
    is_newest    boolean     PRIMARY KEY DEFAULT true CHECK (is_newest),
    taken_at     timestamptz NOT NULL,
    whole_at     timestamptz NOT NULL,
    ledger_file  bigint      NOT NULL,
    ledger_pages bigint      NOT NULL,
    ledger_edits bigint      NOT NULL,
    next_xid     bigint      NOT NULL
);

GRANT SELECT, INSERT ON reclaim.audit_positions, reclaim.audit_checkpoint TO reclaim_app;
GRANT UPDATE (seq, balance) ON reclaim.audit_positions TO reclaim_app;
GRANT UPDATE (taken_at, whole_at, ledger_file, ledger_pages, ledger_edits, next_xid) ON reclaim.audit_checkpoint TO reclaim_app;
GRANT SELECT ON reclaim.audit_positions, reclaim.audit_checkpoint TO reclaim_support;

-- What was claimed lately is found without reading the rest.
CREATE INDEX IF NOT EXISTS operations_written ON reclaim.operations USING brin (created_at)
    WITH (pages_per_range = 32, autosummarize = on);

-- The entries that lie from a page on and were written by a transaction that was not over when next_xid was the next one.
-- Entries are never written again, so that one which a checkpoint covers is not among them.
CREATE OR REPLACE FUNCTION reclaim.entries_written_since(next_xid bigint, from_page bigint)
    RETURNS TABLE (tenant_id text, account_id text, seq bigint, job_id text)
    LANGUAGE sql STABLE AS $$
SELECT entry.tenant_id, entry.account_id, entry.seq, entry.job_id FROM reclaim.ledger_entries AS entry
WHERE entry.ctid >= format('(%s,0)', from_page)::tid
    AND age(entry.xmin) BETWEEN 0 AND age((next_xid % 4294967296)::text::xid)
$$;

-- Each tenant's entries as they were soon after they had been written, one hash on another. A row says that the entry was
-- the next of its tenant's chain.
CREATE TABLE IF NOT EXISTS reclaim.ledger_seals (
    tenant_id  text        NOT NULL,
    position   bigint      NOT NULL CHECK (position > 0),
    account_id text        NOT NULL,
    seq        bigint      NOT NULL CHECK (seq > 0),
    hash       bytea       NOT NULL CHECK (octet_length(hash) = 32),
    sealed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, position),
    UNIQUE (tenant_id, account_id, seq)
);
DROP TRIGGER IF EXISTS append_only ON reclaim.ledger_seals;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON reclaim.ledger_seals
    FOR EACH STATEMENT EXECUTE FUNCTION reclaim.refuse_change();
GRANT SELECT, INSERT ON reclaim.ledger_seals TO reclaim_app;
GRANT SELECT ON reclaim.ledger_seals TO reclaim_support;
