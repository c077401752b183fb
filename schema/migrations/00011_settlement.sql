-- +goose Up

-- A settlement file as it was given, once for each content.
CREATE TABLE IF NOT EXISTS reclaim.settlement_files (
    tenant_id text        NOT NULL CHECK (tenant_id ~ '^[A-Za-z0-9._:-]{1,100}$'),
    channel   text        NOT NULL CHECK (channel ~ '^[A-Za-z0-9._:-]{1,100}$'),
    -- SHA-256 of the whole
    file_hash text        NOT NULL CHECK (file_hash ~ '^[0-9a-f]{64}$'),
    -- in the order of their coming: what a later file says of a transaction counts
    file_no   bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    name      text        NOT NULL CHECK (octet_length(name) <= 200),
    bytes     bigint      NOT NULL CHECK (bytes BETWEEN 1 AND 268435456),
    actor     text        NOT NULL CHECK (actor <> '' AND octet_length(actor) <= 200),
    stored_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, channel, file_hash),
    UNIQUE (tenant_id, file_no)
);

CREATE TABLE IF NOT EXISTS reclaim.settlement_chunks (
    tenant_id text    NOT NULL,
    file_no   bigint  NOT NULL,
    chunk     integer NOT NULL CHECK (chunk >= 0),
    content   bytea   NOT NULL CHECK (octet_length(content) BETWEEN 1 AND 1048576),
    PRIMARY KEY (tenant_id, file_no, chunk),
    FOREIGN KEY (tenant_id, file_no) REFERENCES reclaim.settlement_files (tenant_id, file_no)
);

-- What was read from a file, line by line.
CREATE TABLE IF NOT EXISTS reclaim.settlement_lines (
    tenant_id      text        NOT NULL,
    file_no        bigint      NOT NULL,
    line           integer     NOT NULL CHECK (line > 0),
    channel        text        NOT NULL,
    -- as it stands in the file, whatever its encoding
    raw            bytea       NOT NULL CHECK (octet_length(raw) <= 2097152),
    -- names the movement in every file: the channel's own id or, where there is none, kind, reference and time
    transaction_id text        NOT NULL CHECK (transaction_id <> '' AND octet_length(transaction_id) <= 200),
    kind           text        NOT NULL DEFAULT '' CHECK (octet_length(kind) <= 200),
    -- whether kind is one of the channel's usual ones beside payment, refund and refund_failure
    ordinary       boolean     NOT NULL DEFAULT false,
    reference      text        NOT NULL DEFAULT '' CHECK (octet_length(reference) <= 200),
    number         text        NOT NULL DEFAULT '' CHECK (octet_length(number) <= 200),
    payment        text        NOT NULL DEFAULT '' CHECK (octet_length(payment) <= 200),
    alias          text        NOT NULL DEFAULT '' CHECK (octet_length(alias) <= 200),
    -- the customer's, without a sign
    amount         bigint      NOT NULL DEFAULT 0 CHECK (amount >= 0),
    currency       text        NOT NULL DEFAULT '' CHECK (octet_length(currency) <= 20),
    -- the balance's
    gross          bigint      NOT NULL DEFAULT 0,
    fee            bigint      NOT NULL DEFAULT 0,
    net            bigint      NOT NULL DEFAULT 0,
    settled        text        NOT NULL DEFAULT '' CHECK (octet_length(settled) <= 20),
    code           text        NOT NULL DEFAULT '' CHECK (octet_length(code) <= 200),
    made_at        timestamptz,
    -- why the line cannot be relied on
    problem        text        NOT NULL DEFAULT '' CHECK (octet_length(problem) <= 2000),
    PRIMARY KEY (tenant_id, file_no, line),
    FOREIGN KEY (tenant_id, file_no) REFERENCES reclaim.settlement_files (tenant_id, file_no)
);
-- The tenant comes second, so that a plan made before there are statistics does not take it for the way to a line.
CREATE INDEX IF NOT EXISTS settlement_lines_transaction
    ON reclaim.settlement_lines (transaction_id, tenant_id, channel, file_no, line);
CREATE INDEX IF NOT EXISTS settlement_lines_number ON reclaim.settlement_lines (number, tenant_id, channel) WHERE number <> '';
CREATE INDEX IF NOT EXISTS settlement_lines_reference
    ON reclaim.settlement_lines (reference, tenant_id, channel) WHERE reference <> '';

-- That a file was read to its end, and the whole days (UTC) from its first movement to its last.
CREATE TABLE IF NOT EXISTS reclaim.settlement_readings (
    tenant_id text        NOT NULL,
    file_no   bigint      NOT NULL,
    lines     bigint      NOT NULL CHECK (lines >= 0),
    since     timestamptz,
    until     timestamptz,
    read_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, file_no),
    FOREIGN KEY (tenant_id, file_no) REFERENCES reclaim.settlement_files (tenant_id, file_no),
    CHECK ((since IS NULL) = (until IS NULL))
);

-- A transaction of an earlier file that a corrected one no longer has.
CREATE TABLE IF NOT EXISTS reclaim.settlement_gone (
    tenant_id      text   NOT NULL,
    channel        text   NOT NULL,
    transaction_id text   NOT NULL,
    -- the file that lacks it
    file_no        bigint NOT NULL,
    PRIMARY KEY (tenant_id, channel, transaction_id, file_no),
    FOREIGN KEY (tenant_id, file_no) REFERENCES reclaim.settlement_files (tenant_id, file_no)
);

-- What all files of a channel say together: each transaction once, as its newest file has it, without what a correction left
-- out and what cannot be relied on. Both are asked by scalar subqueries: of NOT EXISTS the planner makes joins, which it then
-- makes for the lines of all files before it looks for the few that are asked for.
CREATE OR REPLACE VIEW reclaim.settlement_book AS
SELECT line.tenant_id, line.channel, line.file_no, line.line, line.transaction_id, line.kind, line.reference, line.number,
    line.amount, line.currency, line.made_at
FROM reclaim.settlement_lines AS line
WHERE line.problem = ''
    AND (SELECT true FROM reclaim.settlement_lines AS newer WHERE newer.tenant_id = line.tenant_id
        AND newer.channel = line.channel AND newer.transaction_id = line.transaction_id
        AND (newer.file_no > line.file_no OR newer.file_no = line.file_no AND newer.line < line.line) LIMIT 1) IS NULL
    AND (SELECT true FROM reclaim.settlement_gone AS gone WHERE gone.tenant_id = line.tenant_id
        AND gone.channel = line.channel AND gone.transaction_id = line.transaction_id AND gone.file_no > line.file_no LIMIT 1) IS NULL;

-- The movements that a channel is expected to settle for our refunds: what went out, and what came back. One that failed
-- after the channel had acknowledged it may have gone out before, which only its lines tell.
CREATE OR REPLACE VIEW reclaim.settlement_expected AS
SELECT refund.tenant_id, orders.channel, refund.refund_id, refund.channel_ref, refund.state, refund.currency, moved.kind,
    (moved.sign * refund.amount)::bigint AS amount,
    CASE moved.kind WHEN 'refund' THEN coalesce(refund.first_sent_at, refund.succeeded_at) ELSE refund.returned_at END AS at
FROM reclaim.refunds AS refund
JOIN reclaim.orders ON orders.order_id = refund.order_id AND orders.tenant_id = refund.tenant_id
CROSS JOIN (SELECT 'refund'::text AS kind, 1 AS sign UNION ALL SELECT 'refund_failure'::text, -1) AS moved
WHERE refund.state = 'reversed' OR refund.state = 'succeeded' AND moved.kind = 'refund'
    OR refund.state = 'failed' AND refund.channel_ref <> '' AND EXISTS (SELECT FROM reclaim.settlement_book AS line
        WHERE line.tenant_id = refund.tenant_id AND line.channel = orders.channel AND line.reference <> ''
            AND line.reference = refund.channel_ref AND line.kind IN ('refund', 'refund_failure')
            AND coalesce(line.made_at, '-infinity') <= refund.returned_at);

-- Whose each line is: ours, that is the tenant's who gave the file; theirs, another tenant's; nobody's; or the channel's own.
CREATE OR REPLACE VIEW reclaim.settlement_claims AS
SELECT line.tenant_id, line.file_no, line.line, line.channel, line.transaction_id, line.kind, line.ordinary, line.reference,
    line.number, line.payment, line.alias, line.amount, line.currency, line.gross, line.fee, line.net, line.settled, line.code,
    line.made_at, line.problem,
    CASE WHEN line.kind NOT IN ('payment', 'refund', 'refund_failure') THEN 'channel'
        WHEN coalesce(named.tenant_id, referred.tenant_id, bought.tenant_id) = line.tenant_id THEN 'ours'
        WHEN coalesce(named.tenant_id, referred.tenant_id) IS NOT NULL
            OR EXISTS (SELECT FROM reclaim.orders WHERE orders.channel = line.channel
                AND orders.channel_payment_id IN (nullif(line.payment, ''), nullif(line.alias, ''))) THEN 'theirs'
        ELSE 'nobody' END AS whose,
    CASE WHEN named.refund_id IS NOT NULL THEN named.refund_id ELSE referred.refund_id END AS refund_id,
    bought.order_id
FROM reclaim.settlement_lines AS line
LEFT JOIN LATERAL (
    SELECT refunds.tenant_id, refunds.refund_id FROM reclaim.refunds
    JOIN reclaim.orders ON orders.order_id = refunds.order_id AND orders.tenant_id = refunds.tenant_id
    WHERE line.kind IN ('refund', 'refund_failure') AND line.number <> '' AND refunds.refund_id = line.number
        AND orders.channel = line.channel
    LIMIT 1
) AS named ON true
LEFT JOIN LATERAL (
    SELECT refunds.tenant_id, refunds.refund_id FROM reclaim.refunds
    JOIN reclaim.orders ON orders.order_id = refunds.order_id AND orders.tenant_id = refunds.tenant_id
    WHERE line.kind IN ('refund', 'refund_failure') AND named.refund_id IS NULL AND line.reference <> ''
        AND refunds.channel_ref <> '' AND refunds.channel_ref = line.reference AND orders.channel = line.channel
    LIMIT 1
) AS referred ON true
LEFT JOIN LATERAL (
    -- the channel's own list may know the payment by the name by which it was ordered
    SELECT channel_lines.payment FROM reclaim.channel_lines
    WHERE channel_lines.tenant_id = line.tenant_id AND channel_lines.channel = line.channel
        AND channel_lines.kind = CASE WHEN line.kind = 'payment' THEN 'payment' ELSE 'refund' END
        AND channel_lines.reference = CASE WHEN line.kind = 'payment' THEN line.payment ELSE line.reference END
        AND line.kind IN ('payment', 'refund', 'refund_failure')
    LIMIT 1
) AS listed ON true
LEFT JOIN LATERAL (
    SELECT orders.tenant_id, orders.order_id FROM reclaim.orders
    WHERE named.refund_id IS NULL AND referred.refund_id IS NULL AND orders.tenant_id = line.tenant_id
        AND orders.channel = line.channel AND line.kind IN ('payment', 'refund', 'refund_failure')
        AND orders.channel_payment_id IN (nullif(line.payment, ''), nullif(line.alias, ''), nullif(listed.payment, ''))
    LIMIT 1
) AS bought ON true;

-- By how much a finding makes up a difference between a settlement file's sums and ours, in the smallest unit of a currency.
ALTER TABLE reclaim.reconciliation_findings
    ADD COLUMN IF NOT EXISTS difference bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS currency text NOT NULL DEFAULT '' CHECK (octet_length(currency) <= 20);

-- What of a pass could not be finished and why, a line for each part; empty where all was.
ALTER TABLE reclaim.reconciliations
    ADD COLUMN IF NOT EXISTS unfinished text NOT NULL DEFAULT '' CHECK (octet_length(unfinished) <= 20000);
GRANT UPDATE (unfinished) ON reclaim.reconciliations TO reclaim_app;

-- +goose StatementBegin
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['files', 'chunks', 'lines', 'readings', 'gone'] LOOP
        EXECUTE format('DROP TRIGGER IF EXISTS append_only ON reclaim.settlement_%s', name);
        EXECUTE format('CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON reclaim.settlement_%s '
            'FOR EACH STATEMENT EXECUTE FUNCTION reclaim.refuse_change()', name);
    END LOOP;
END
$$;
-- +goose StatementEnd

GRANT SELECT ON reclaim.settlement_files, reclaim.settlement_chunks, reclaim.settlement_lines, reclaim.settlement_readings,
    reclaim.settlement_gone, reclaim.settlement_book, reclaim.settlement_expected, reclaim.settlement_claims
    TO reclaim_app, reclaim_support;
GRANT INSERT ON reclaim.settlement_files, reclaim.settlement_chunks, reclaim.settlement_lines, reclaim.settlement_readings,
    reclaim.settlement_gone TO reclaim_app;
