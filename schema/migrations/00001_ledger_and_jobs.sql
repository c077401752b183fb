-- +goose Up

-- +goose StatementBegin
DO $$
DECLARE
    wanted text;
BEGIN
    -- Roles belong to the whole cluster: they may exist already, or be made by another migration at this moment.
    FOREACH wanted IN ARRAY ARRAY['reclaim_app', 'reclaim_support'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;
            END;
        END IF;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- goose keeps its version table in the schema, so it is there already when migrate runs this.
CREATE SCHEMA IF NOT EXISTS reclaim;
GRANT USAGE ON SCHEMA reclaim TO reclaim_app, reclaim_support;

-- balance and seq repeat the newest ledger entry's balance_after and seq; they are written by the statement that
-- appends it, and audit proves them against the sum.
CREATE TABLE reclaim.accounts (
    tenant_id  text        NOT NULL CHECK (tenant_id ~ '^[A-Za-z0-9._:-]{1,100}$'),
    account_id text        NOT NULL CHECK (account_id ~ '^[A-Za-z0-9._:-]{1,100}$'),
    asset      text        NOT NULL CHECK (asset ~ '^[A-Za-z0-9._:-]{1,100}$'),
    balance    bigint      NOT NULL DEFAULT 0,
    seq        bigint      NOT NULL DEFAULT 0 CHECK (seq >= 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, account_id),
    CHECK (seq > 0 OR balance = 0)
) WITH (fillfactor = 50);

CREATE TABLE reclaim.jobs (
    tenant_id        text        NOT NULL,
    job_id           text        NOT NULL CHECK (job_id ~ '^[A-Za-z0-9._:-]{1,100}$'),
    account_id       text        NOT NULL,
    cost             bigint      NOT NULL CHECK (cost BETWEEN 0 AND 9007199254740991),
    fingerprint      text        NOT NULL CHECK (fingerprint <> ''),
    state            text        NOT NULL
        CHECK (state IN ('running', 'dead_letter', 'succeeded', 'failed', 'canceled', 'written_off')),
    is_refunded      boolean     NOT NULL DEFAULT false,
    refunded_at      timestamptz,
    is_reclaimed     boolean     NOT NULL DEFAULT false,
    reclaimed_at     timestamptz,
    delivered_at     timestamptz,
    -- finished attempts; the work may be in its next one
    attempts         integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    -- attempts that people added to the limit of the spec
    granted          integer     NOT NULL DEFAULT 0 CHECK (granted >= 0),
    -- the attempt that the idempotency key is named after: one past the last attempt that definitely failed
    key_attempt      integer     NOT NULL DEFAULT 1 CHECK (key_attempt >= 1),
    -- a cancel outlives the run that received it
    cancel_requested boolean     NOT NULL DEFAULT false,
    last_error       text        NOT NULL DEFAULT '' CHECK (octet_length(last_error) <= 2000),
    reason           text        NOT NULL DEFAULT '' CHECK (octet_length(reason) <= 2000),
    output           text        CHECK (octet_length(output) <= 65536),
    spec             text        NOT NULL CHECK (octet_length(spec) <= 65536),
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, job_id),
    FOREIGN KEY (tenant_id, account_id) REFERENCES reclaim.accounts,
    CHECK (is_refunded = (refunded_at IS NOT NULL)),
    CHECK (is_reclaimed = (reclaimed_at IS NOT NULL)),
    CHECK ((state = 'succeeded') = (delivered_at IS NOT NULL)),
    -- a delivered job is charged once: whatever was refunded has been reclaimed, and only a delivery reclaims
    CHECK (is_reclaimed = (is_refunded AND state = 'succeeded')),
    -- nothing but a delivery or a running job may keep the customer's money
    CHECK (state IN ('running', 'succeeded') OR is_refunded),
    CHECK (output IS NULL OR state = 'succeeded')
) WITH (fillfactor = 70);

CREATE INDEX jobs_open ON reclaim.jobs (tenant_id, job_id) WHERE state IN ('running', 'dead_letter');

CREATE TABLE reclaim.ledger_entries (
    tenant_id     text        NOT NULL,
    account_id    text        NOT NULL,
    seq           bigint      NOT NULL CHECK (seq > 0),
    type          text        NOT NULL
        CHECK (type IN ('topup', 'charge', 'refund', 'reclaim', 'payout', 'payout_return', 'adjust')),
    amount        bigint      NOT NULL,
    balance_after bigint      NOT NULL,
    job_id        text,
    order_id      text,
    refund_id     text,
    reason        text        NOT NULL CHECK (reason <> '' AND octet_length(reason) <= 2000),
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, account_id, seq),
    FOREIGN KEY (tenant_id, account_id) REFERENCES reclaim.accounts,
    FOREIGN KEY (tenant_id, job_id) REFERENCES reclaim.jobs,
    CHECK (amount <> 0),
    CHECK (type = 'adjust' OR (amount > 0) = (type IN ('topup', 'refund', 'payout_return'))),
    -- only a reclaim or a person takes a balance below zero
    CHECK (balance_after >= 0 OR amount > 0 OR type IN ('reclaim', 'adjust')),
    CHECK (type NOT IN ('charge', 'refund', 'reclaim') OR job_id IS NOT NULL),
    CHECK (type NOT IN ('topup', 'adjust') OR (job_id IS NULL AND refund_id IS NULL)),
    CHECK ((type IN ('payout', 'payout_return')) = (refund_id IS NOT NULL))
);

-- The backstop behind the guards: a job is charged, refunded and reclaimed at most once each.
CREATE UNIQUE INDEX ledger_entries_job ON reclaim.ledger_entries (tenant_id, job_id, type)
    WHERE type IN ('charge', 'refund', 'reclaim');
CREATE UNIQUE INDEX ledger_entries_refund ON reclaim.ledger_entries (tenant_id, refund_id, type)
    WHERE type IN ('payout', 'payout_return');

-- What happened to a job beside its money: attempts that ended, probe answers, reports that were only recorded,
-- decisions that were refused. Timelines are told from it.
CREATE TABLE reclaim.job_events (
    tenant_id  text        NOT NULL,
    job_id     text        NOT NULL,
    event_id   bigint      GENERATED ALWAYS AS IDENTITY,
    kind       text        NOT NULL CHECK (kind IN (
        'attempt_failed', 'attempt_unknown', 'probe_answered', 'outcome_recorded', 'cancel_requested',
        'dead_letter', 'closed', 'message_refused')),
    attempt    integer     NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    detail     text        NOT NULL DEFAULT '' CHECK (octet_length(detail) <= 2000),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, job_id, event_id),
    FOREIGN KEY (tenant_id, job_id) REFERENCES reclaim.jobs
);

-- A key names one operation for ever, so that a repeated request finds the first one's result.
CREATE TABLE reclaim.operations (
    tenant_id   text        NOT NULL,
    actor       text        NOT NULL CHECK (actor <> '' AND octet_length(actor) <= 200),
    kind        text        NOT NULL CHECK (kind IN ('topup', 'adjust')),
    key         text        NOT NULL CHECK (key <> '' AND octet_length(key) <= 200),
    fingerprint text        NOT NULL CHECK (fingerprint <> ''),
    subject_id  text        NOT NULL,
    -- the ledger entry that the operation wrote on the account subject_id
    entry_seq   bigint      NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at  timestamptz,
    PRIMARY KEY (tenant_id, actor, kind, key)
);

CREATE TABLE reclaim.resolutions (
    tenant_id     text        NOT NULL,
    subject_kind  text        NOT NULL CHECK (subject_kind IN ('job')),
    subject_id    text        NOT NULL,
    resolution_id text        NOT NULL CHECK (resolution_id ~ '^[A-Za-z0-9._:-]{1,100}$'),
    action        text        NOT NULL CHECK (octet_length(action) <= 200),
    attempts      integer     NOT NULL DEFAULT 0,
    operator      text        NOT NULL CHECK (octet_length(operator) <= 2000),
    approver      text        NOT NULL DEFAULT '' CHECK (octet_length(approver) <= 2000),
    reason        text        NOT NULL CHECK (octet_length(reason) <= 2000),
    evidence      text        NOT NULL DEFAULT '' CHECK (octet_length(evidence) <= 2000),
    outcome       text        NOT NULL CHECK (outcome IN ('applied', 'refused')),
    -- the subject's state right after the decision, and why it was refused
    state         text        NOT NULL,
    refusal       text        NOT NULL DEFAULT '' CHECK ((outcome = 'refused') = (refusal <> '')),
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, subject_kind, subject_id, resolution_id)
);

-- +goose StatementBegin
CREATE FUNCTION reclaim.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'reclaim.% is append-only: % is refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation', HINT = 'append a correcting row instead (starter account adjust)';
END
$$;
-- +goose StatementEnd

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON reclaim.ledger_entries
    FOR EACH STATEMENT EXECUTE FUNCTION reclaim.refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON reclaim.job_events
    FOR EACH STATEMENT EXECUTE FUNCTION reclaim.refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON reclaim.resolutions
    FOR EACH STATEMENT EXECUTE FUNCTION reclaim.refuse_change();

GRANT SELECT ON ALL TABLES IN SCHEMA reclaim TO reclaim_app, reclaim_support;
GRANT INSERT ON reclaim.accounts, reclaim.jobs, reclaim.ledger_entries, reclaim.job_events, reclaim.operations,
    reclaim.resolutions TO reclaim_app;
-- FOR UPDATE needs the right to update some column; each table gives only those that a guard writes.
GRANT UPDATE (balance, seq) ON reclaim.accounts TO reclaim_app;
GRANT UPDATE (state, is_refunded, refunded_at, is_reclaimed, reclaimed_at, delivered_at, attempts, granted,
    key_attempt, cancel_requested, last_error, reason, output, updated_at) ON reclaim.jobs TO reclaim_app;
