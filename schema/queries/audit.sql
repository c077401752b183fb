-- The audit's checks. They run in one snapshot, and each answers only what is broken: at most @break_limit lines for
-- each check, each with the number of all that the check found. Sums and steps are numeric, so that no tampered value
-- can overflow them. An empty @only_tenant looks at all tenants.

-- name: PrepareAudit :one
-- Lets the statements of this transaction take as long as they need, use several processes, sort in memory and be planned
-- for their values, and keeps Postgres from compiling each of them first, which took longer than running them. Answers when
-- the transaction's snapshot was taken.
SELECT clock_timestamp()::timestamptz AS taken_at
FROM set_config('statement_timeout', '0', true) AS patient, set_config('work_mem', '64MB', true) AS roomy,
    set_config('jit', 'off', true) AS uncompiled, set_config('plan_cache_mode', 'auto', true) AS planned,
    set_config('max_parallel_workers_per_gather', '4', true) AS parallel;

-- name: AuditEntries :many
-- Each entry by itself and against the one before it.
WITH entry AS (
    SELECT tenant_id, account_id, seq, type, amount, balance_after, job_id, refund_id, reason = '' AS no_reason,
        lag(seq, 1, 0::bigint) OVER account AS seq_before,
        lag(balance_after, 1, 0::bigint) OVER account AS balance_before
    FROM reclaim.ledger_entries
    WHERE @only_tenant::text = '' OR tenant_id = @only_tenant
    WINDOW account AS (PARTITION BY tenant_id, account_id ORDER BY seq)
), judged AS (
    SELECT *,
        seq::numeric <> seq_before::numeric + 1 AS bad_seq,
        balance_after::numeric <> balance_before::numeric + amount AS bad_balance,
        balance_after < 0 AND amount <= 0 AND type NOT IN ('reclaim', 'adjust') AS bad_debt,
        amount = 0 OR type <> 'adjust' AND (amount > 0) <> (type IN ('topup', 'refund', 'payout_return')) AS bad_amount,
        type NOT IN ('topup', 'charge', 'refund', 'reclaim', 'payout', 'payout_return', 'adjust') OR no_reason
            OR type IN ('charge', 'refund', 'reclaim') AND job_id IS NULL
            OR type IN ('topup', 'adjust') AND (job_id IS NOT NULL OR refund_id IS NOT NULL)
            OR (type IN ('payout', 'payout_return')) <> (refund_id IS NOT NULL) AS bad_subject
    FROM entry
), suspect AS MATERIALIZED (
    SELECT * FROM judged
    WHERE bad_seq OR bad_balance OR bad_debt OR bad_amount OR bad_subject
), broken AS (
    SELECT 'entry_seq' AS name, tenant_id, account_id, seq, job_id,
        format('seq %s after seq %s', seq_before::numeric + 1, seq_before) AS expected,
        format('seq %s', seq) AS found
    FROM suspect WHERE bad_seq
    UNION ALL
    SELECT 'entry_balance', tenant_id, account_id, seq, job_id,
        format('balance_after %s (%s before, %s moved)', balance_before::numeric + amount, balance_before, amount),
        format('balance_after %s', balance_after)
    FROM suspect WHERE bad_balance
    UNION ALL
    SELECT 'entry_debt', tenant_id, account_id, seq, job_id,
        'only a reclaim or an adjust takes a balance below zero',
        format('a %s of %s to balance %s', type, amount, balance_after)
    FROM suspect WHERE bad_debt
    UNION ALL
    SELECT 'entry_amount', tenant_id, account_id, seq, job_id,
        'topup, refund and payout_return above 0, charge, reclaim and payout below, none 0',
        format('a %s of %s', type, amount)
    FROM suspect WHERE bad_amount
    UNION ALL
    SELECT 'entry_subject', tenant_id, account_id, seq, job_id,
        'a known type with a reason and its job (charge, refund, reclaim), refund (payout, payout_return) or neither',
        format('type %s, job %s, refund %s, %s', type, coalesce(job_id, 'none'), coalesce(refund_id, 'none'),
            CASE WHEN no_reason THEN 'no reason' ELSE 'a reason' END)
    FROM suspect WHERE bad_subject
), numbered AS (
    SELECT *, count(*) OVER (PARTITION BY name) AS total,
        row_number() OVER (PARTITION BY name ORDER BY tenant_id, account_id, seq) AS place
    FROM broken
)
SELECT name::text AS check_name, total::bigint AS total, tenant_id::text AS tenant_id, account_id::text AS account_id,
    seq::bigint AS seq, coalesce(job_id, '')::text AS job_id, expected::text AS expected, found::text AS found
FROM numbered WHERE place <= @break_limit::bigint ORDER BY name, place;

-- name: AuditAccounts :many
-- Each account's row against its entries.
WITH booked AS (
    SELECT tenant_id, account_id, count(*) AS entries, max(seq) AS last_seq, sum(amount) AS booked
    FROM reclaim.ledger_entries
    WHERE @only_tenant::text = '' OR tenant_id = @only_tenant
    GROUP BY tenant_id, account_id
), account AS (
    SELECT tenant_id, account_id, balance, seq FROM reclaim.accounts
    WHERE @only_tenant = '' OR tenant_id = @only_tenant
), compared AS MATERIALIZED (
    SELECT coalesce(account.tenant_id, booked.tenant_id) AS tenant_id,
        coalesce(account.account_id, booked.account_id) AS account_id,
        account.account_id IS NULL AS is_missing, account.balance, account.seq,
        coalesce(booked.entries, 0) AS entries, coalesce(booked.last_seq, 0) AS last_seq,
        coalesce(booked.booked, 0) AS booked, coalesce(newest.balance_after, 0) AS last_balance
    FROM account
    FULL JOIN booked ON booked.tenant_id = account.tenant_id AND booked.account_id = account.account_id
    LEFT JOIN reclaim.ledger_entries AS newest ON newest.tenant_id = booked.tenant_id
        AND newest.account_id = booked.account_id AND newest.seq = booked.last_seq
), broken AS (
    SELECT 'account_missing' AS name, tenant_id, account_id,
        'an account row' AS expected,
        format('%s entries without one', entries) AS found
    FROM compared WHERE is_missing
    UNION ALL
    SELECT 'account_empty', tenant_id, account_id,
        'balance 0 and seq 0, since there are no entries',
        format('balance %s and seq %s', balance, seq)
    FROM compared WHERE entries = 0 AND (balance <> 0 OR seq <> 0)
    UNION ALL
    SELECT 'account_seq', tenant_id, account_id,
        format('seq %s, the newest entry''s, and as many entries', last_seq),
        format('seq %s and %s entries', seq, entries)
    FROM compared WHERE entries > 0 AND (seq <> last_seq OR seq <> entries)
    UNION ALL
    SELECT 'account_balance', tenant_id, account_id,
        format('balance %s, the newest entry''s balance_after', last_balance),
        format('balance %s', balance)
    FROM compared WHERE entries > 0 AND balance <> last_balance
    UNION ALL
    SELECT 'account_sum', tenant_id, account_id,
        format('balance %s, the sum of the entries', booked),
        format('balance %s', balance)
    FROM compared WHERE entries > 0 AND balance <> booked
), numbered AS (
    SELECT *, count(*) OVER (PARTITION BY name) AS total,
        row_number() OVER (PARTITION BY name ORDER BY tenant_id, account_id) AS place
    FROM broken
)
SELECT name::text AS check_name, total::bigint AS total, tenant_id::text AS tenant_id, account_id::text AS account_id,
    0::bigint AS seq, ''::text AS job_id, expected::text AS expected, found::text AS found
FROM numbered WHERE place <= @break_limit::bigint ORDER BY name, place;

-- name: AuditJobEntries :many
-- Each charge, refund and reclaim against its job.
WITH compared AS (
    SELECT entry.tenant_id, entry.account_id, entry.seq, entry.type, entry.amount, coalesce(entry.job_id, '') AS job_id,
        job.account_id AS job_account, job.job_id IS NULL AS no_job, job.account_id <> entry.account_id AS bad_account,
        CASE entry.type WHEN 'refund' THEN job.cost ELSE -job.cost::numeric END AS right_amount
    FROM reclaim.ledger_entries AS entry
    LEFT JOIN reclaim.jobs AS job ON job.tenant_id = entry.tenant_id AND job.job_id = entry.job_id
    WHERE entry.type IN ('charge', 'refund', 'reclaim') AND (@only_tenant::text = '' OR entry.tenant_id = @only_tenant)
), suspect AS MATERIALIZED (
    SELECT * FROM compared
    WHERE no_job OR bad_account OR amount <> right_amount
), broken AS (
    SELECT 'entry_job' AS name, tenant_id, account_id, seq, job_id,
        'a job that exists' AS expected,
        format('a %s of %s for none', type, amount) AS found
    FROM suspect WHERE no_job
    UNION ALL
    SELECT 'entry_account', tenant_id, account_id, seq, job_id,
        format('account %s, which the job belongs to', job_account),
        format('a %s on account %s', type, account_id)
    FROM suspect WHERE bad_account
    UNION ALL
    SELECT 'entry_cost', tenant_id, account_id, seq, job_id,
        format('amount %s by the job''s cost', right_amount),
        format('a %s of %s', type, amount)
    FROM suspect WHERE amount <> right_amount
), numbered AS (
    SELECT *, count(*) OVER (PARTITION BY name) AS total,
        row_number() OVER (PARTITION BY name ORDER BY tenant_id, account_id, seq) AS place
    FROM broken
)
SELECT name::text AS check_name, total::bigint AS total, tenant_id::text AS tenant_id, account_id::text AS account_id,
    seq::bigint AS seq, job_id::text AS job_id, expected::text AS expected, found::text AS found
FROM numbered WHERE place <= @break_limit::bigint ORDER BY name, place;

-- name: AuditJobs :many
-- Each job's row in itself, and against the entries that it made.
WITH made AS (
    SELECT tenant_id, job_id, count(*) FILTER (WHERE type = 'charge') AS charges,
        count(*) FILTER (WHERE type = 'refund') AS refunds, count(*) FILTER (WHERE type = 'reclaim') AS reclaims,
        sum(amount) AS net
    FROM reclaim.ledger_entries
    WHERE type IN ('charge', 'refund', 'reclaim') AND (@only_tenant::text = '' OR tenant_id = @only_tenant)
    GROUP BY tenant_id, job_id
), compared AS (
    SELECT job.tenant_id, job.account_id, job.job_id, job.state, job.cost, job.is_refunded, job.is_reclaimed,
        job.refunded_at IS NOT NULL AS has_refunded_at, job.reclaimed_at IS NOT NULL AS has_reclaimed_at,
        job.delivered_at IS NOT NULL AS has_delivered_at, job.output IS NOT NULL AS has_output,
        account.account_id IS NULL AS no_account,
        coalesce(made.charges, 0) AS charges, coalesce(made.refunds, 0) AS refunds,
        coalesce(made.reclaims, 0) AS reclaims, coalesce(made.net, 0) AS net,
        (job.cost > 0)::integer AS right_charges,
        (job.cost > 0 AND job.is_refunded)::integer AS right_refunds,
        (job.cost > 0 AND job.is_reclaimed)::integer AS right_reclaims,
        CASE WHEN job.state = 'succeeded' OR job.state = 'running' AND NOT job.is_refunded THEN -job.cost::numeric
            ELSE 0 END AS right_net
    FROM reclaim.jobs AS job
    LEFT JOIN made ON made.tenant_id = job.tenant_id AND made.job_id = job.job_id
    LEFT JOIN reclaim.accounts AS account ON account.tenant_id = job.tenant_id AND account.account_id = job.account_id
    WHERE @only_tenant = '' OR job.tenant_id = @only_tenant
), judged AS (
    SELECT *,
        cost NOT BETWEEN 0 AND 9007199254740991 AS bad_cost,
        charges <> right_charges OR refunds <> right_refunds OR reclaims <> right_reclaims AS bad_entries,
        net <> right_net AS bad_net,
        state NOT IN ('running', 'dead_letter', 'succeeded', 'failed', 'canceled', 'written_off') AS bad_state,
        is_refunded <> has_refunded_at AS bad_refunded_at,
        state NOT IN ('running', 'succeeded') AND NOT is_refunded AS bad_refund,
        is_reclaimed <> has_reclaimed_at AS bad_reclaimed_at,
        is_reclaimed <> (is_refunded AND state = 'succeeded') AS bad_reclaim,
        (state = 'succeeded') <> has_delivered_at AS bad_delivered_at,
        has_output AND state <> 'succeeded' AS bad_output
    FROM compared
), suspect AS MATERIALIZED (
    SELECT * FROM judged
    WHERE no_account OR bad_cost OR bad_entries OR bad_net OR bad_state OR bad_refunded_at OR bad_refund
        OR bad_reclaimed_at OR bad_reclaim OR bad_delivered_at OR bad_output
), broken AS (
    SELECT 'job_account' AS name, tenant_id, account_id, job_id,
        'an account that exists' AS expected,
        format('no account %s', account_id) AS found
    FROM suspect WHERE no_account
    UNION ALL
    SELECT 'job_cost', tenant_id, account_id, job_id,
        'a cost from 0 to 2^53-1',
        format('cost %s', cost)
    FROM suspect WHERE bad_cost
    UNION ALL
    SELECT 'job_entries', tenant_id, account_id, job_id,
        format('%s charge, %s refund, %s reclaim by its cost and flags', right_charges, right_refunds, right_reclaims),
        format('%s, %s and %s', charges, refunds, reclaims)
    FROM suspect WHERE bad_entries
    UNION ALL
    SELECT 'job_net', tenant_id, account_id, job_id,
        format('entries that sum to %s, since it is %s and %s', right_net, state,
            CASE WHEN is_refunded THEN 'refunded' ELSE 'unrefunded' END),
        format('a sum of %s', net)
    FROM suspect WHERE bad_net
    UNION ALL
    SELECT 'job_state', tenant_id, account_id, job_id,
        'a state that exists',
        format('state %s', state)
    FROM suspect WHERE bad_state
    UNION ALL
    SELECT 'job_refunded', tenant_id, account_id, job_id,
        'refunded_at set if and only if it is refunded',
        format('is_refunded %s, refunded_at %s', is_refunded, CASE WHEN has_refunded_at THEN 'set' ELSE 'unset' END)
    FROM suspect WHERE bad_refunded_at
    UNION ALL
    SELECT 'job_refunded', tenant_id, account_id, job_id,
        'a refund, since it is neither running nor delivered',
        format('state %s, not refunded', state)
    FROM suspect WHERE bad_refund
    UNION ALL
    SELECT 'job_reclaimed', tenant_id, account_id, job_id,
        'reclaimed_at set if and only if it is reclaimed',
        format('is_reclaimed %s, reclaimed_at %s', is_reclaimed, CASE WHEN has_reclaimed_at THEN 'set' ELSE 'unset' END)
    FROM suspect WHERE bad_reclaimed_at
    UNION ALL
    SELECT 'job_reclaimed', tenant_id, account_id, job_id,
        'a reclaim if and only if it was refunded and then delivered',
        format('state %s, is_refunded %s, is_reclaimed %s', state, is_refunded, is_reclaimed)
    FROM suspect WHERE bad_reclaim
    UNION ALL
    SELECT 'job_delivered', tenant_id, account_id, job_id,
        'delivered_at set if and only if it succeeded',
        format('state %s, delivered_at %s', state, CASE WHEN has_delivered_at THEN 'set' ELSE 'unset' END)
    FROM suspect WHERE bad_delivered_at
    UNION ALL
    SELECT 'job_delivered', tenant_id, account_id, job_id,
        'an output only where it succeeded',
        format('state %s with an output', state)
    FROM suspect WHERE bad_output
), numbered AS (
    SELECT *, count(*) OVER (PARTITION BY name) AS total,
        row_number() OVER (PARTITION BY name ORDER BY tenant_id, job_id) AS place
    FROM broken
)
SELECT name::text AS check_name, total::bigint AS total, tenant_id::text AS tenant_id, account_id::text AS account_id,
    0::bigint AS seq, job_id::text AS job_id, expected::text AS expected, found::text AS found
FROM numbered WHERE place <= @break_limit::bigint ORDER BY name, place;

-- name: AuditOperations :many
-- Each top-up, order and adjustment against the operation that claimed its key, both ways, and each operation against
-- the order or refund that it names.
WITH entry AS (
    SELECT tenant_id, account_id, seq, type, amount, order_id,
        CASE WHEN order_id IS NOT NULL THEN 'order' ELSE type END AS right_kind
    FROM reclaim.ledger_entries
    WHERE type IN ('topup', 'adjust') AND (@only_tenant::text = '' OR tenant_id = @only_tenant)
), claim AS (
    SELECT past.tenant_id, past.kind, past.subject_id, past.entry_seq,
        CASE past.kind WHEN 'order' THEN bought.account_id WHEN 'refund' THEN NULL ELSE past.subject_id END AS account_id,
        format('%s %s of %s', past.kind, past.key, past.actor) AS named,
        past.kind = 'order' AND bought.order_id IS NULL OR past.kind = 'refund' AND refund.refund_id IS NULL AS no_subject
    FROM reclaim.operations AS past
    LEFT JOIN reclaim.orders AS bought ON past.kind = 'order' AND bought.tenant_id = past.tenant_id
        AND bought.order_id = past.subject_id
    LEFT JOIN reclaim.refunds AS refund ON past.kind = 'refund' AND refund.tenant_id = past.tenant_id
        AND refund.refund_id = past.subject_id
    WHERE @only_tenant = '' OR past.tenant_id = @only_tenant
), operation AS (
    SELECT tenant_id, account_id, entry_seq AS seq, count(*) AS claims, min(kind) AS kind,
        min(subject_id) AS subject_id, min(named) AS named
    FROM claim
    WHERE kind <> 'refund'
    GROUP BY tenant_id, account_id, entry_seq
), compared AS MATERIALIZED (
    SELECT coalesce(entry.tenant_id, operation.tenant_id) AS tenant_id,
        coalesce(entry.account_id, operation.account_id, '') AS account_id,
        coalesce(entry.seq, operation.seq, 0) AS seq, entry.type, entry.amount, entry.right_kind, operation.claims,
        operation.kind, operation.named,
        operation.kind <> entry.right_kind OR entry.order_id <> operation.subject_id AS bad_kind
    FROM entry
    FULL JOIN operation ON operation.tenant_id = entry.tenant_id AND operation.account_id = entry.account_id
        AND operation.seq = entry.seq
), broken AS (
    SELECT 'entry_operation' AS name, tenant_id, account_id, seq,
        'the operation that made it' AS expected,
        format('a %s of %s without one', type, amount) AS found
    FROM compared WHERE claims IS NULL
    UNION ALL
    SELECT 'operation_entry', tenant_id, account_id, seq,
        'the entry that the operation made',
        format('the operation %s without one', named)
    FROM compared WHERE type IS NULL
    UNION ALL
    SELECT 'operation_entry', tenant_id, account_id, seq,
        'one operation for one entry',
        format('%s operations, one of them %s', claims, named)
    FROM compared WHERE claims > 1
    UNION ALL
    SELECT 'operation_entry', tenant_id, account_id, seq,
        format('an operation of kind %s', right_kind),
        format('the operation %s', named)
    FROM compared WHERE claims = 1 AND bad_kind
    UNION ALL
    SELECT 'operation_subject', tenant_id, coalesce(account_id, ''), coalesce(entry_seq, 0),
        format('the %s %s, which the operation names', kind, subject_id),
        format('the operation %s without it', named)
    FROM claim WHERE no_subject
), numbered AS (
    SELECT *, count(*) OVER (PARTITION BY name) AS total,
        row_number() OVER (PARTITION BY name ORDER BY tenant_id, account_id, seq) AS place
    FROM broken
)
SELECT name::text AS check_name, total::bigint AS total, tenant_id::text AS tenant_id, account_id::text AS account_id,
    seq::bigint AS seq, ''::text AS job_id, expected::text AS expected, found::text AS found
FROM numbered WHERE place <= @break_limit::bigint ORDER BY name, place;

-- name: AuditOrders :many
-- Each order's row in itself, against its refunds, and against the top-up that it made.
WITH held AS (
    SELECT tenant_id, order_id,
        coalesce(sum(amount) FILTER (WHERE state IN ('accepted', 'unknown', 'pending')), 0) AS reserved,
        coalesce(sum(credits) FILTER (WHERE state IN ('accepted', 'unknown', 'pending')), 0) AS reserved_credits,
        coalesce(sum(amount) FILTER (WHERE state = 'succeeded'), 0) AS refunded,
        coalesce(sum(credits) FILTER (WHERE state = 'succeeded'), 0) AS refunded_credits
    FROM reclaim.refunds
    WHERE @only_tenant::text = '' OR tenant_id = @only_tenant
    GROUP BY tenant_id, order_id
), topped AS (
    SELECT tenant_id, order_id, count(*) AS entries, sum(amount) AS credits
    FROM reclaim.ledger_entries
    WHERE type = 'topup' AND order_id IS NOT NULL AND (@only_tenant = '' OR tenant_id = @only_tenant)
    GROUP BY tenant_id, order_id
), compared AS (
    SELECT bought.*, coalesce(held.reserved, 0) AS right_reserved, coalesce(held.refunded, 0) AS right_refunded,
        coalesce(held.reserved_credits, 0) AS right_reserved_credits,
        coalesce(held.refunded_credits, 0) AS right_refunded_credits,
        coalesce(topped.entries, 0) AS entries, coalesce(topped.credits, 0) AS topped
    FROM reclaim.orders AS bought
    LEFT JOIN held ON held.tenant_id = bought.tenant_id AND held.order_id = bought.order_id
    LEFT JOIN topped ON topped.tenant_id = bought.tenant_id AND topped.order_id = bought.order_id
    WHERE @only_tenant = '' OR bought.tenant_id = @only_tenant
), judged AS (
    SELECT *,
        (reserved, reserved_credits) <> (right_reserved, right_reserved_credits) AS bad_reserved,
        (refunded, refunded_credits) <> (right_refunded, right_refunded_credits) AS bad_refunded,
        reserved < 0 OR refunded < 0 OR reserved::numeric + refunded > paid
            OR reserved_credits < 0 OR refunded_credits < 0 OR reserved_credits::numeric + refunded_credits > credits
            AS bad_capacity,
        entries <> 1 OR topped <> credits AS bad_entry
    FROM compared
), suspect AS MATERIALIZED (
    SELECT * FROM judged WHERE bad_reserved OR bad_refunded OR bad_capacity OR bad_entry
), broken AS (
    SELECT 'order_reserved' AS name, tenant_id, account_id, order_id,
        format('%s of money and %s credits reserved, as its open refunds sum to', right_reserved, right_reserved_credits)
            AS expected,
        format('%s and %s', reserved, reserved_credits) AS found
    FROM suspect WHERE bad_reserved
    UNION ALL
    SELECT 'order_refunded', tenant_id, account_id, order_id,
        format('%s of money and %s credits refunded, as its refunds that succeeded sum to', right_refunded,
            right_refunded_credits),
        format('%s and %s', refunded, refunded_credits)
    FROM suspect WHERE bad_refunded
    UNION ALL
    SELECT 'order_capacity', tenant_id, account_id, order_id,
        format('from 0 to the %s that were paid, and to the %s credits', paid, credits),
        format('reserved %s and refunded %s, in credits %s and %s', reserved, refunded, reserved_credits, refunded_credits)
    FROM suspect WHERE bad_capacity
    UNION ALL
    SELECT 'order_entry', tenant_id, account_id, order_id,
        format('one topup of its %s credits', credits),
        format('%s, which sum to %s', entries, topped)
    FROM suspect WHERE bad_entry
), numbered AS (
    SELECT *, count(*) OVER (PARTITION BY name) AS total,
        row_number() OVER (PARTITION BY name ORDER BY tenant_id, order_id) AS place
    FROM broken
)
SELECT name::text AS check_name, total::bigint AS total, tenant_id::text AS tenant_id, account_id::text AS account_id,
    0::bigint AS seq, ''::text AS job_id, order_id::text AS order_id, ''::text AS refund_id, expected::text AS expected,
    found::text AS found
FROM numbered WHERE place <= @break_limit::bigint ORDER BY name, place;

-- name: AuditOrderEntries :many
-- Each entry that names an order or a refund, or must, against it.
WITH compared AS (
    SELECT entry.tenant_id, entry.account_id, entry.seq, entry.type, entry.amount, entry.job_id, entry.order_id,
        entry.refund_id, refund.order_id AS right_order, refund.job_id AS right_job, bought.account_id AS right_account,
        CASE entry.type WHEN 'payout' THEN -refund.credits::numeric ELSE refund.credits END AS right_amount,
        entry.type IN ('payout', 'payout_return') AND refund.refund_id IS NULL AS no_refund,
        entry.order_id IS NOT NULL AND bought.order_id IS NULL AS no_order,
        bought.account_id <> entry.account_id AS bad_account,
        refund.refund_id IS NOT NULL AND (entry.order_id IS DISTINCT FROM refund.order_id
            OR entry.job_id IS DISTINCT FROM refund.job_id) AS bad_names
    FROM reclaim.ledger_entries AS entry
    LEFT JOIN reclaim.refunds AS refund ON refund.tenant_id = entry.tenant_id AND refund.refund_id = entry.refund_id
    LEFT JOIN reclaim.orders AS bought ON bought.tenant_id = entry.tenant_id AND bought.order_id = entry.order_id
    WHERE (entry.order_id IS NOT NULL OR entry.refund_id IS NOT NULL OR entry.type IN ('payout', 'payout_return'))
        AND (@only_tenant::text = '' OR entry.tenant_id = @only_tenant)
), suspect AS MATERIALIZED (
    SELECT * FROM compared
    WHERE no_refund OR no_order OR bad_account OR bad_names OR amount <> right_amount
), broken AS (
    SELECT 'entry_refund' AS name, tenant_id, account_id, seq, job_id, order_id, refund_id,
        'a refund that exists' AS expected,
        format('a %s of %s for none', type, amount) AS found
    FROM suspect WHERE no_refund
    UNION ALL
    SELECT 'entry_credits', tenant_id, account_id, seq, job_id, order_id, refund_id,
        format('amount %s by the refund''s credits', right_amount),
        format('a %s of %s', type, amount)
    FROM suspect WHERE amount <> right_amount
    UNION ALL
    SELECT 'entry_order', tenant_id, account_id, seq, job_id, order_id, refund_id,
        'an order that exists',
        format('a %s for none', type)
    FROM suspect WHERE no_order
    UNION ALL
    SELECT 'entry_order', tenant_id, account_id, seq, job_id, order_id, refund_id,
        format('account %s, which the order belongs to', right_account),
        format('a %s on account %s', type, account_id)
    FROM suspect WHERE bad_account
    UNION ALL
    SELECT 'entry_names', tenant_id, account_id, seq, job_id, order_id, refund_id,
        format('order %s and job %s, as its refund', right_order, coalesce(right_job, 'none')),
        format('order %s and job %s', coalesce(order_id, 'none'), coalesce(job_id, 'none'))
    FROM suspect WHERE bad_names
), numbered AS (
    SELECT *, count(*) OVER (PARTITION BY name) AS total,
        row_number() OVER (PARTITION BY name ORDER BY tenant_id, account_id, seq) AS place
    FROM broken
)
SELECT name::text AS check_name, total::bigint AS total, tenant_id::text AS tenant_id, account_id::text AS account_id,
    seq::bigint AS seq, coalesce(job_id, '')::text AS job_id, coalesce(order_id, '')::text AS order_id,
    coalesce(refund_id, '')::text AS refund_id, expected::text AS expected, found::text AS found
FROM numbered WHERE place <= @break_limit::bigint ORDER BY name, place;

-- name: AuditRefunds :many
-- Each channel refund's row in itself, and against its order, its job, the entries that it made and its issue.
WITH made AS (
    SELECT tenant_id, refund_id, count(*) FILTER (WHERE type = 'payout') AS payouts,
        count(*) FILTER (WHERE type = 'payout_return') AS returns
    FROM reclaim.ledger_entries
    WHERE refund_id IS NOT NULL AND (@only_tenant::text = '' OR tenant_id = @only_tenant)
    GROUP BY tenant_id, refund_id
), told AS (
    SELECT DISTINCT tenant_id, subject_id AS refund_id FROM reclaim.issues
    WHERE kind = 'refund_reversed' AND subject_kind = 'refund' AND (@only_tenant = '' OR tenant_id = @only_tenant)
), compared AS (
    SELECT refund.tenant_id, refund.refund_id, refund.order_id, refund.job_id, refund.amount, refund.currency,
        refund.credits, refund.state, refund.send_count, refund.channel_ref, refund.first_sent_at IS NOT NULL AS has_sent_at,
        refund.succeeded_at IS NOT NULL AS has_succeeded_at, refund.returned_at IS NOT NULL AS has_returned_at,
        refund.channel_ref <> '' AND count(*) OVER (PARTITION BY bought.channel, refund.channel_ref) > 1 AS shared_reference,
        coalesce(bought.account_id, '') AS account_id, bought.order_id IS NULL AS no_order,
        bought.currency AS right_currency, refund.job_id IS NOT NULL AND job.job_id IS NULL AS no_job,
        job.account_id AS job_account, job.is_refunded AS job_refunded, job.cost AS job_cost,
        coalesce(made.payouts, 0) AS payouts, coalesce(made.returns, 0) AS returns,
        (refund.credits > 0)::integer AS right_payouts,
        (refund.credits > 0 AND refund.state IN ('failed', 'canceled', 'reversed'))::integer AS right_returns,
        told.refund_id IS NOT NULL AS has_issue
    FROM reclaim.refunds AS refund
    LEFT JOIN reclaim.orders AS bought ON bought.tenant_id = refund.tenant_id AND bought.order_id = refund.order_id
    LEFT JOIN reclaim.jobs AS job ON job.tenant_id = refund.tenant_id AND job.job_id = refund.job_id
    LEFT JOIN made ON made.tenant_id = refund.tenant_id AND made.refund_id = refund.refund_id
    LEFT JOIN told ON told.tenant_id = refund.tenant_id AND told.refund_id = refund.refund_id
    WHERE @only_tenant = '' OR refund.tenant_id = @only_tenant
), judged AS (
    SELECT *,
        no_order OR currency <> right_currency AS bad_order,
        no_job OR job_account <> account_id OR NOT job_refunded OR job_cost <> credits AS bad_job,
        amount NOT BETWEEN 1 AND 9007199254740991 OR credits NOT BETWEEN 0 AND 9007199254740991 AS bad_amount,
        state NOT IN ('accepted', 'unknown', 'pending', 'succeeded', 'failed', 'canceled', 'reversed') AS bad_state,
        (state IN ('accepted', 'canceled')) = has_sent_at OR (send_count > 0) <> has_sent_at AS bad_sent,
        (state IN ('succeeded', 'reversed')) <> has_succeeded_at
            OR (state IN ('failed', 'canceled', 'reversed')) <> has_returned_at AS bad_end,
        state IN ('pending', 'succeeded', 'reversed') AND channel_ref = '' OR shared_reference AS no_reference,
        payouts <> right_payouts OR returns <> right_returns AS bad_entries,
        state = 'reversed' AND NOT has_issue AS no_issue
    FROM compared
), suspect AS MATERIALIZED (
    SELECT * FROM judged
    WHERE bad_order OR bad_job OR bad_amount OR bad_state OR bad_sent OR bad_end OR no_reference OR bad_entries OR no_issue
), broken AS (
    SELECT 'refund_order' AS name, tenant_id, account_id, job_id, order_id, refund_id,
        CASE WHEN no_order THEN 'an order that exists' ELSE format('currency %s, the order''s', right_currency) END
            AS expected,
        CASE WHEN no_order THEN format('no order %s', order_id) ELSE format('currency %s', currency) END AS found
    FROM suspect WHERE bad_order
    UNION ALL
    SELECT 'refund_job', tenant_id, account_id, job_id, order_id, refund_id,
        format('a refunded job of cost %s on the order''s account %s', credits, account_id),
        CASE WHEN no_job THEN format('no job %s', job_id) ELSE format('job %s of cost %s on account %s%s', job_id, job_cost,
            job_account, CASE WHEN job_refunded THEN '' ELSE ', not refunded' END) END
    FROM suspect WHERE bad_job
    UNION ALL
    SELECT 'refund_amount', tenant_id, account_id, job_id, order_id, refund_id,
        'an amount from 1 and credits from 0 to 2^53-1',
        format('amount %s, credits %s', amount, credits)
    FROM suspect WHERE bad_amount
    UNION ALL
    SELECT 'refund_state', tenant_id, account_id, job_id, order_id, refund_id,
        'a state that exists',
        format('state %s', state)
    FROM suspect WHERE bad_state
    UNION ALL
    SELECT 'refund_sent', tenant_id, account_id, job_id, order_id, refund_id,
        'first_sent_at set and sends counted if and only if it was sent',
        format('state %s, first_sent_at %s, send_count %s', state, CASE WHEN has_sent_at THEN 'set' ELSE 'unset' END,
            send_count)
    FROM suspect WHERE bad_sent
    UNION ALL
    SELECT 'refund_end', tenant_id, account_id, job_id, order_id, refund_id,
        'succeeded_at set if and only if it ever succeeded, returned_at if and only if the reservation was released',
        format('state %s, succeeded_at %s, returned_at %s', state, CASE WHEN has_succeeded_at THEN 'set' ELSE 'unset' END,
            CASE WHEN has_returned_at THEN 'set' ELSE 'unset' END)
    FROM suspect WHERE bad_end
    UNION ALL
    SELECT 'refund_reference', tenant_id, account_id, job_id, order_id, refund_id,
        'the channel''s reference, and no other refund''s',
        CASE WHEN shared_reference THEN format('%s, which another refund has too', channel_ref)
            ELSE format('state %s without one', state) END
    FROM suspect WHERE no_reference
    UNION ALL
    SELECT 'refund_entries', tenant_id, account_id, job_id, order_id, refund_id,
        format('%s payout and %s payout_return, since it is %s with %s credits', right_payouts, right_returns, state,
            credits),
        format('%s and %s', payouts, returns)
    FROM suspect WHERE bad_entries
    UNION ALL
    SELECT 'refund_issue', tenant_id, account_id, job_id, order_id, refund_id,
        'an issue, since the bank took it back',
        'none of kind refund_reversed'
    FROM suspect WHERE no_issue
), numbered AS (
    SELECT *, count(*) OVER (PARTITION BY name) AS total,
        row_number() OVER (PARTITION BY name ORDER BY tenant_id, refund_id) AS place
    FROM broken
)
SELECT name::text AS check_name, total::bigint AS total, tenant_id::text AS tenant_id, account_id::text AS account_id,
    0::bigint AS seq, coalesce(job_id, '')::text AS job_id, order_id::text AS order_id, refund_id::text AS refund_id,
    expected::text AS expected, found::text AS found
FROM numbered WHERE place <= @break_limit::bigint ORDER BY name, place;

-- name: AuditRefundEvents :many
-- Each refund's events by themselves, against the one before, and the last against the refund's known.
WITH event AS (
    SELECT tenant_id, refund_id, seq, from_state, to_state,
        lag(seq, 1, 0::bigint) OVER refund AS seq_before, lag(to_state, 1, '') OVER refund AS state_before,
        lead(seq) OVER refund IS NULL AS is_last
    FROM reclaim.refund_events
    WHERE @only_tenant::text = '' OR tenant_id = @only_tenant
    WINDOW refund AS (PARTITION BY tenant_id, refund_id ORDER BY seq)
), known AS (
    SELECT tenant_id, refund_id, order_id, state, event_seq FROM reclaim.refunds
    WHERE @only_tenant = '' OR tenant_id = @only_tenant
), compared AS (
    SELECT coalesce(event.tenant_id, known.tenant_id) AS tenant_id, coalesce(event.refund_id, known.refund_id) AS refund_id,
        known.order_id, known.state, known.event_seq, known.refund_id IS NULL AS no_refund, event.seq, event.seq_before,
        event.from_state, event.to_state, event.state_before,
        event.seq::numeric <> event.seq_before::numeric + 1 AS bad_seq, event.from_state <> event.state_before AS bad_chain,
        event.seq IS NULL OR event.is_last AND (event.seq <> known.event_seq OR event.to_state <> known.state) AS bad_last
    FROM event FULL JOIN known ON known.tenant_id = event.tenant_id AND known.refund_id = event.refund_id
), suspect AS MATERIALIZED (
    SELECT * FROM compared WHERE no_refund OR bad_seq OR bad_chain OR bad_last
), broken AS (
    SELECT 'event_refund' AS name, tenant_id, order_id, refund_id, seq,
        'a refund that exists' AS expected,
        format('event %s of none', seq) AS found
    FROM suspect WHERE no_refund
    UNION ALL
    SELECT 'event_seq', tenant_id, order_id, refund_id, seq,
        format('event %s after event %s', seq_before::numeric + 1, seq_before),
        format('event %s', seq)
    FROM suspect WHERE bad_seq
    UNION ALL
    SELECT 'event_chain', tenant_id, order_id, refund_id, seq,
        format('event %s begins in state %s, in which the one before ended', seq, coalesce(nullif(state_before, ''), 'none')),
        format('in %s', coalesce(nullif(from_state, ''), 'none'))
    FROM suspect WHERE bad_chain
    UNION ALL
    SELECT 'event_last', tenant_id, order_id, refund_id, seq,
        format('last event %s, which ends in %s, as the refund says', event_seq, state),
        CASE WHEN seq IS NULL THEN 'no event' ELSE format('event %s, which ends in %s', seq, to_state) END
    FROM suspect WHERE bad_last
), numbered AS (
    SELECT *, count(*) OVER (PARTITION BY name) AS total,
        row_number() OVER (PARTITION BY name ORDER BY tenant_id, refund_id, seq) AS place
    FROM broken
)
SELECT name::text AS check_name, total::bigint AS total, tenant_id::text AS tenant_id, ''::text AS account_id,
    0::bigint AS seq, ''::text AS job_id, coalesce(order_id, '')::text AS order_id, refund_id::text AS refund_id,
    expected::text AS expected, found::text AS found
FROM numbered WHERE place <= @break_limit::bigint ORDER BY name, place;
