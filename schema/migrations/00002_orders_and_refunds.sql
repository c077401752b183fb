-- +goose Up

-- A payment that came through a channel and bought credits. What was sent back, and what is on its way, is counted here:
-- reserved until the channel confirms, then refunded.
CREATE TABLE reclaim.orders (
    tenant_id          text        NOT NULL,
    order_id           text        NOT NULL CHECK (order_id ~ '^[A-Za-z0-9._:-]{1,100}$'),
    account_id         text        NOT NULL,
    channel            text        NOT NULL CHECK (channel ~ '^[A-Za-z0-9._:-]{1,100}$'),
    channel_payment_id text        NOT NULL CHECK (channel_payment_id <> '' AND octet_length(channel_payment_id) <= 200),
    currency           text        NOT NULL CHECK (currency ~ '^[a-z]{3}$'),
    paid               bigint      NOT NULL CHECK (paid BETWEEN 1 AND 9007199254740991),
    credits            bigint      NOT NULL CHECK (credits BETWEEN 1 AND 9007199254740991),
    reserved           bigint      NOT NULL DEFAULT 0 CHECK (reserved >= 0),
    refunded           bigint      NOT NULL DEFAULT 0 CHECK (refunded >= 0),
    reserved_credits   bigint      NOT NULL DEFAULT 0 CHECK (reserved_credits >= 0),
    refunded_credits   bigint      NOT NULL DEFAULT 0 CHECK (refunded_credits >= 0),
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, order_id),
    UNIQUE (tenant_id, channel, channel_payment_id),
    FOREIGN KEY (tenant_id, account_id) REFERENCES reclaim.accounts,
    CHECK (reserved + refunded <= paid),
    CHECK (reserved_credits + refunded_credits <= credits)
) WITH (fillfactor = 70);

CREATE TABLE reclaim.refunds (
    tenant_id        text        NOT NULL,
    -- also the number that is sent to the channel
    refund_id        text        NOT NULL CHECK (refund_id ~ '^[A-Za-z0-9_-]{1,64}$'),
    order_id         text        NOT NULL,
    job_id           text,
    amount           bigint      NOT NULL CHECK (amount BETWEEN 1 AND 9007199254740991),
    currency         text        NOT NULL CHECK (currency ~ '^[a-z]{3}$'),
    credits          bigint      NOT NULL CHECK (credits BETWEEN 0 AND 9007199254740991),
    state            text        NOT NULL
        CHECK (state IN ('accepted', 'unknown', 'pending', 'succeeded', 'failed', 'canceled', 'reversed')),
    needs_review     boolean     NOT NULL DEFAULT false,
    channel_ref      text        NOT NULL DEFAULT '' CHECK (octet_length(channel_ref) <= 200),
    requested_by     text        NOT NULL CHECK (octet_length(requested_by) <= 200),
    reason           text        NOT NULL CHECK (reason <> '' AND octet_length(reason) <= 2000),
    -- how often sending began; a transport may have repeated it, which the events tell
    send_count       integer     NOT NULL DEFAULT 0 CHECK (send_count >= 0),
    first_sent_at    timestamptz,
    last_checked_at  timestamptz,
    -- look-ups that were made, when the next is due, and when a person is asked instead
    look_count       integer     NOT NULL DEFAULT 0 CHECK (look_count >= 0),
    next_look_at     timestamptz,
    look_until       timestamptz,
    -- a person asked to send the number again
    resend_requested boolean     NOT NULL DEFAULT false,
    -- the newest event's seq, outcome and code: a look-up that finds nothing new is counted, not told again
    event_seq        bigint      NOT NULL DEFAULT 0 CHECK (event_seq >= 0),
    last_outcome     text        NOT NULL DEFAULT '',
    last_code        text        NOT NULL DEFAULT '',
    succeeded_at     timestamptz,
    returned_at      timestamptz,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, refund_id),
    FOREIGN KEY (tenant_id, order_id) REFERENCES reclaim.orders,
    FOREIGN KEY (tenant_id, job_id) REFERENCES reclaim.jobs,
    CHECK ((state IN ('accepted', 'canceled')) = (first_sent_at IS NULL)),
    CHECK ((send_count > 0) = (first_sent_at IS NOT NULL)),
    CHECK ((state IN ('succeeded', 'reversed')) = (succeeded_at IS NOT NULL)),
    CHECK ((state IN ('failed', 'canceled', 'reversed')) = (returned_at IS NOT NULL)),
    CHECK (state NOT IN ('pending', 'succeeded', 'reversed') OR channel_ref <> '')
) WITH (fillfactor = 50);

-- A channel may serve several tenants, and knows a refund by its number alone.
CREATE UNIQUE INDEX refunds_number ON reclaim.refunds (refund_id);
CREATE INDEX refunds_order ON reclaim.refunds (tenant_id, order_id);
CREATE INDEX refunds_open ON reclaim.refunds (tenant_id, refund_id) WHERE state IN ('accepted', 'unknown', 'pending');
CREATE UNIQUE INDEX refunds_job ON reclaim.refunds (tenant_id, job_id) WHERE job_id IS NOT NULL;

CREATE TABLE reclaim.refund_events (
    tenant_id   text        NOT NULL,
    refund_id   text        NOT NULL,
    seq         bigint      NOT NULL CHECK (seq > 0),
    source      text        NOT NULL
        CHECK (source IN ('accept', 'send', 'create', 'query', 'notice', 'settlement', 'person')),
    from_state  text        NOT NULL,
    to_state    text        NOT NULL,
    outcome     text        NOT NULL CHECK (octet_length(outcome) <= 100),
    channel_ref text        NOT NULL DEFAULT '' CHECK (octet_length(channel_ref) <= 200),
    amount      bigint,
    currency    text,
    code        text        NOT NULL DEFAULT '' CHECK (octet_length(code) <= 200),
    evidence    text        NOT NULL DEFAULT '' CHECK (octet_length(evidence) <= 2000),
    -- how often the request went onto the wire
    sends       integer     NOT NULL DEFAULT 0 CHECK (sends >= 0),
    actor       text        NOT NULL DEFAULT '' CHECK (octet_length(actor) <= 2000),
    observed_at timestamptz NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, refund_id, seq),
    FOREIGN KEY (tenant_id, refund_id) REFERENCES reclaim.refunds
);

-- What a person has to look at: evidence that contradicts what is known, and facts that nothing here explains.
CREATE TABLE reclaim.issues (
    tenant_id    text        NOT NULL,
    issue_id     text        NOT NULL CHECK (issue_id <> '' AND octet_length(issue_id) <= 200),
    kind         text        NOT NULL CHECK (kind <> '' AND octet_length(kind) <= 100),
    subject_kind text        NOT NULL CHECK (subject_kind IN ('refund', 'order', 'job', 'channel')),
    subject_id   text        NOT NULL,
    evidence     text        NOT NULL CHECK (octet_length(evidence) <= 2000),
    state        text        NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'resolved')),
    opened_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    resolved_at  timestamptz,
    PRIMARY KEY (tenant_id, issue_id),
    CHECK ((state = 'resolved') = (resolved_at IS NOT NULL))
);
CREATE INDEX issues_open ON reclaim.issues (tenant_id, opened_at) WHERE state = 'open';
CREATE INDEX issues_subject ON reclaim.issues (tenant_id, subject_kind, subject_id);

-- What is to be done outside once the transaction that wrote the row is committed.
CREATE TABLE reclaim.outbox (
    id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind            text        NOT NULL CHECK (kind IN ('start_refund', 'start_job')),
    tenant_id       text        NOT NULL,
    subject_id      text        NOT NULL,
    payload         text        NOT NULL CHECK (octet_length(payload) <= 65536),
    attempts        integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    last_error      text        NOT NULL DEFAULT '' CHECK (octet_length(last_error) <= 2000),
    next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    delivered_at    timestamptz
);
CREATE INDEX outbox_due ON reclaim.outbox (next_attempt_at) WHERE delivered_at IS NULL;

-- +goose StatementBegin
CREATE FUNCTION reclaim.announce_outbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('reclaim_outbox', '');
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER announce AFTER INSERT ON reclaim.outbox
    FOR EACH STATEMENT EXECUTE FUNCTION reclaim.announce_outbox();

ALTER TABLE reclaim.ledger_entries
    ADD FOREIGN KEY (tenant_id, order_id) REFERENCES reclaim.orders,
    ADD FOREIGN KEY (tenant_id, refund_id) REFERENCES reclaim.refunds;

-- An order's payment is an operation of its own, and a refund's has no ledger entry where it gives no credits back. A
-- job's refund has no actor.
ALTER TABLE reclaim.operations
    DROP CONSTRAINT operations_kind_check,
    ADD CONSTRAINT operations_kind_check CHECK (kind IN ('topup', 'adjust', 'order', 'refund')),
    DROP CONSTRAINT operations_actor_check,
    ADD CONSTRAINT operations_actor_check CHECK ((actor <> '' OR kind = 'refund') AND octet_length(actor) <= 200),
    ALTER COLUMN entry_seq DROP NOT NULL,
    ADD CONSTRAINT operations_entry_check CHECK ((entry_seq IS NULL) = (kind = 'refund'));
CREATE INDEX operations_expiry ON reclaim.operations (expires_at) WHERE expires_at IS NOT NULL;

ALTER TABLE reclaim.resolutions
    DROP CONSTRAINT resolutions_subject_kind_check,
    ADD CONSTRAINT resolutions_subject_kind_check CHECK (subject_kind IN ('job', 'refund', 'issue')),
    -- what the decision named beside its columns, so that a repeated id can be told from another decision
    ADD COLUMN particulars text NOT NULL DEFAULT '' CHECK (octet_length(particulars) <= 2000);

ALTER TABLE reclaim.job_events
    DROP CONSTRAINT job_events_kind_check,
    ADD CONSTRAINT job_events_kind_check CHECK (kind IN (
        'attempt_failed', 'attempt_unknown', 'probe_answered', 'outcome_recorded', 'cancel_requested',
        'dead_letter', 'closed', 'message_refused', 'source_refund', 'source_refused'));

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON reclaim.refund_events
    FOR EACH STATEMENT EXECUTE FUNCTION reclaim.refuse_change();

GRANT SELECT ON ALL TABLES IN SCHEMA reclaim TO reclaim_app, reclaim_support;
GRANT INSERT ON reclaim.orders, reclaim.refunds, reclaim.refund_events, reclaim.issues, reclaim.outbox TO reclaim_app;
GRANT UPDATE (reserved, refunded, reserved_credits, refunded_credits) ON reclaim.orders TO reclaim_app;
GRANT UPDATE (state, needs_review, channel_ref, send_count, first_sent_at, last_checked_at, look_count, next_look_at,
    look_until, resend_requested, event_seq, last_outcome, last_code, succeeded_at, returned_at, updated_at)
    ON reclaim.refunds TO reclaim_app;
GRANT UPDATE (state, resolved_at) ON reclaim.issues TO reclaim_app;
GRANT UPDATE (attempts, last_error, next_attempt_at, delivered_at) ON reclaim.outbox TO reclaim_app;
-- Operations are forgotten after their retention; delivered outbox rows are cleared away.
GRANT DELETE ON reclaim.operations, reclaim.outbox TO reclaim_app;
