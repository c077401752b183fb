-- +goose Up

-- One pass that holds what is written here against the runs in Temporal and against what payment channels say.
CREATE TABLE IF NOT EXISTS reclaim.reconciliations (
    tenant_id         text        NOT NULL CHECK (tenant_id ~ '^[A-Za-z0-9._:-]{1,100}$'),
    -- its workflow run's id
    reconciliation_id text        NOT NULL CHECK (reconciliation_id ~ '^[A-Za-z0-9._:-]{1,100}$'),
    -- the period of what channels are asked for
    since             timestamptz NOT NULL,
    until             timestamptz NOT NULL,
    started_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at          timestamptz,
    PRIMARY KEY (tenant_id, reconciliation_id),
    CHECK (since < until)
);

-- What a pass found otherwise than it should be, and what it did about it.
CREATE TABLE IF NOT EXISTS reclaim.reconciliation_findings (
    tenant_id         text        NOT NULL,
    reconciliation_id text        NOT NULL,
    kind              text        NOT NULL CHECK (kind <> '' AND octet_length(kind) <= 100),
    subject_kind      text        NOT NULL CHECK (subject_kind IN ('refund', 'order', 'job', 'account', 'channel')),
    subject_id        text        NOT NULL CHECK (octet_length(subject_id) <= 200),
    -- what tells this fact from another of the same kind and subject: the channel's reference, a run's id
    particular        text        NOT NULL DEFAULT '' CHECK (octet_length(particular) <= 200),
    -- repaired: set right by the pass. opened: an issue was opened for a person. known: its issue had been opened before.
    -- noted: nothing is to be done.
    effect            text        NOT NULL CHECK (effect IN ('repaired', 'opened', 'known', 'noted')),
    issue_id          text        NOT NULL DEFAULT '' CHECK (octet_length(issue_id) <= 200),
    detail            text        NOT NULL CHECK (octet_length(detail) <= 2000),
    found_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, reconciliation_id, kind, subject_kind, subject_id, particular),
    FOREIGN KEY (tenant_id, reconciliation_id) REFERENCES reclaim.reconciliations,
    CHECK (effect NOT IN ('opened', 'known') OR issue_id <> '')
);

-- What a channel's own list last said of each refund and payment: the middle of refund, channel and settlement.
CREATE TABLE IF NOT EXISTS reclaim.channel_lines (
    tenant_id         text        NOT NULL,
    channel           text        NOT NULL,
    kind              text        NOT NULL CHECK (kind IN ('refund', 'payment')),
    -- the channel's own id
    reference         text        NOT NULL CHECK (reference <> '' AND octet_length(reference) <= 200),
    number            text        NOT NULL DEFAULT '' CHECK (octet_length(number) <= 200),
    payment           text        NOT NULL DEFAULT '' CHECK (octet_length(payment) <= 200),
    amount            bigint      NOT NULL,
    currency          text        NOT NULL CHECK (octet_length(currency) <= 20),
    outcome           text        NOT NULL CHECK (octet_length(outcome) <= 100),
    code              text        NOT NULL DEFAULT '' CHECK (octet_length(code) <= 200),
    made_at           timestamptz NOT NULL,
    seen_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    reconciliation_id text        NOT NULL,
    PRIMARY KEY (tenant_id, channel, kind, reference)
);

CREATE INDEX IF NOT EXISTS channel_lines_payment ON reclaim.channel_lines (tenant_id, channel, payment) WHERE kind = 'payment';
-- Refunds of a period are found by the order of their sending.
CREATE INDEX IF NOT EXISTS refunds_sent ON reclaim.refunds (tenant_id, first_sent_at) WHERE first_sent_at IS NOT NULL;

-- Whose order a payment bought is asked by what a channel says, which knows no tenants.
CREATE INDEX IF NOT EXISTS orders_payment ON reclaim.orders (channel_payment_id, channel);

ALTER TABLE reclaim.issues
    DROP CONSTRAINT IF EXISTS issues_subject_kind_check,
    ADD CONSTRAINT issues_subject_kind_check CHECK (subject_kind IN ('refund', 'order', 'job', 'account', 'channel'));

ALTER TABLE reclaim.job_events
    DROP CONSTRAINT IF EXISTS job_events_kind_check,
    ADD CONSTRAINT job_events_kind_check CHECK (kind IN (
        'attempt_failed', 'attempt_unknown', 'probe_answered', 'outcome_recorded', 'cancel_requested',
        'dead_letter', 'closed', 'message_refused', 'source_refund', 'source_refused', 'taken_up'));

DROP TRIGGER IF EXISTS append_only ON reclaim.reconciliation_findings;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON reclaim.reconciliation_findings
    FOR EACH STATEMENT EXECUTE FUNCTION reclaim.refuse_change();

GRANT SELECT ON reclaim.reconciliations, reclaim.reconciliation_findings, reclaim.channel_lines TO reclaim_app, reclaim_support;
GRANT INSERT ON reclaim.reconciliations, reclaim.reconciliation_findings, reclaim.channel_lines TO reclaim_app;
GRANT UPDATE (ended_at) ON reclaim.reconciliations TO reclaim_app;
GRANT UPDATE (number, payment, amount, currency, outcome, code, made_at, seen_at, reconciliation_id) ON reclaim.channel_lines TO reclaim_app;
