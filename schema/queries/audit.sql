-- The audit's checks. They run in one snapshot, and each answers only what is broken: at most @break_limit lines for
-- each check, each with the number of all that the check found. Sums and steps are numeric, so that no tampered value
-- can overflow them. An empty @only_tenant looks at all tenants.

-- name: PrepareAudit :exec
-- Lets the statements of this transaction take as long as they need, sort in memory and be planned for their values, and
-- keeps Postgres from compiling each of them first, which took longer than running them.
SELECT set_config('statement_timeout', '0', true), set_config('work_mem', '64MB', true), set_config('jit', 'off', true),
    set_config('plan_cache_mode', 'auto', true);

-- name: AuditCounts :one
-- What there is to check.
SELECT
    clock_timestamp()::timestamptz AS taken_at,
    (SELECT count(*) FROM reclaim.accounts AS a
        WHERE @only_tenant::text = '' OR a.tenant_id = @only_tenant)::bigint AS accounts,
    (SELECT count(*) FROM reclaim.ledger_entries AS e
        WHERE @only_tenant = '' OR e.tenant_id = @only_tenant)::bigint AS entries,
    (SELECT count(*) FROM reclaim.jobs AS j
        WHERE @only_tenant = '' OR j.tenant_id = @only_tenant)::bigint AS jobs,
    (SELECT count(*) FROM reclaim.operations AS o
        WHERE @only_tenant = '' OR o.tenant_id = @only_tenant)::bigint AS operations;

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
-- Each top-up and adjustment against the operation that claimed its key, both ways.
WITH entry AS (
    SELECT tenant_id, account_id, seq, type, amount FROM reclaim.ledger_entries
    WHERE type IN ('topup', 'adjust') AND (@only_tenant::text = '' OR tenant_id = @only_tenant)
), operation AS (
    SELECT tenant_id, subject_id AS account_id, entry_seq AS seq, count(*) AS claims, min(kind) AS kind,
        min(format('%s %s of %s', kind, key, actor)) AS named
    FROM reclaim.operations
    WHERE kind IN ('topup', 'adjust') AND (@only_tenant = '' OR tenant_id = @only_tenant)
    GROUP BY tenant_id, subject_id, entry_seq
), compared AS MATERIALIZED (
    SELECT coalesce(entry.tenant_id, operation.tenant_id) AS tenant_id,
        coalesce(entry.account_id, operation.account_id) AS account_id, coalesce(entry.seq, operation.seq) AS seq,
        entry.type, entry.amount, operation.claims, operation.kind, operation.named
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
        format('an operation of kind %s', type),
        format('the operation %s', named)
    FROM compared WHERE claims = 1 AND kind <> type
), numbered AS (
    SELECT *, count(*) OVER (PARTITION BY name) AS total,
        row_number() OVER (PARTITION BY name ORDER BY tenant_id, account_id, seq) AS place
    FROM broken
)
SELECT name::text AS check_name, total::bigint AS total, tenant_id::text AS tenant_id, account_id::text AS account_id,
    seq::bigint AS seq, ''::text AS job_id, expected::text AS expected, found::text AS found
FROM numbered WHERE place <= @break_limit::bigint ORDER BY name, place;
