-- name: PrepareComparison :exec
-- Lets the statements of this transaction take their time, and has each row looked up by an index: what is compared was written
-- a moment ago, so that Postgres has no statistics of it yet, and by its guesses it would read whole tables for every row.
SELECT set_config('statement_timeout', '10min', true), set_config('jit', 'off', true),
    set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true), set_config('enable_seqscan', 'off', true),
    set_config('enable_material', 'off', true), set_config('enable_bitmapscan', 'off', true);

-- name: OpenReconciliation :one
-- Begins a pass, once, and answers it with its period: what is not given ends now, by Postgres' clock, and lasts @window_us.
WITH args AS (
    SELECT @window_us::bigint AS window_us, sqlc.narg(since)::timestamptz AS since,
        coalesce(sqlc.narg(until)::timestamptz, clock_timestamp()) AS until
), opened AS (
    INSERT INTO reclaim.reconciliations (tenant_id, reconciliation_id, since, until)
    SELECT @tenant_id::text, @reconciliation_id::text,
        coalesce(args.since, args.until - args.window_us * interval '1 microsecond'), args.until
    FROM args
    ON CONFLICT DO NOTHING
    RETURNING since, until, started_at
)
SELECT since::timestamptz AS since, until::timestamptz AS until, started_at::timestamptz AS started_at FROM opened
UNION ALL
SELECT since, until, started_at FROM reclaim.reconciliations
WHERE tenant_id = @tenant_id AND reconciliation_id = @reconciliation_id
LIMIT 1;

-- name: CloseReconciliation :exec
UPDATE reclaim.reconciliations SET ended_at = clock_timestamp(), unfinished = @unfinished
WHERE tenant_id = @tenant_id AND reconciliation_id = @reconciliation_id AND ended_at IS NULL;

-- name: GetReconciliation :one
SELECT * FROM reclaim.reconciliations WHERE tenant_id = @tenant_id AND reconciliation_id = @reconciliation_id;

-- name: RecordFinding :one
-- Appends what a pass found, once. With an issue it opens that too, unless it was opened before: one issue for one fact, in
-- whichever pass it is found again. Answers what the finding's effect is.
WITH args AS (
    SELECT @tenant_id::text AS tenant_id, @reconciliation_id::text AS reconciliation_id, @kind::text AS kind,
        @subject_kind::text AS subject_kind, @subject_id::text AS subject_id, @particular::text AS particular,
        @effect::text AS effect, @issue_id::text AS issue_id, @issue_tenant::text AS issue_tenant,
        @issue_kind::text AS issue_kind, @detail::text AS detail, @difference::bigint AS difference, @currency::text AS currency
), opened AS (
    INSERT INTO reclaim.issues (tenant_id, issue_id, kind, subject_kind, subject_id, evidence)
    SELECT args.issue_tenant, args.issue_id, args.issue_kind, args.subject_kind, args.subject_id, args.detail
    FROM args WHERE args.issue_kind <> ''
    ON CONFLICT DO NOTHING
    RETURNING issue_id
), told AS (
    INSERT INTO reclaim.reconciliation_findings (tenant_id, reconciliation_id, kind, subject_kind, subject_id, particular,
        effect, issue_id, detail, difference, currency)
    SELECT args.tenant_id, args.reconciliation_id, args.kind, args.subject_kind, args.subject_id, args.particular,
        CASE WHEN args.issue_kind = '' THEN args.effect WHEN EXISTS (SELECT FROM opened) THEN 'opened' ELSE 'known' END,
        args.issue_id, args.detail, args.difference, args.currency
    FROM args
    ON CONFLICT DO NOTHING
    RETURNING effect
)
SELECT coalesce((SELECT told.effect FROM told), past.effect, '')::text AS effect
FROM args
LEFT JOIN reclaim.reconciliation_findings AS past ON past.tenant_id = args.tenant_id
    AND past.reconciliation_id = args.reconciliation_id AND past.kind = args.kind
    AND past.subject_kind = args.subject_kind AND past.subject_id = args.subject_id AND past.particular = args.particular;

-- name: CountFindings :many
-- How many findings of each kind and effect a pass has.
SELECT kind, effect, count(*) AS findings FROM reclaim.reconciliation_findings
WHERE tenant_id = @tenant_id AND reconciliation_id = @reconciliation_id
GROUP BY kind, effect ORDER BY kind, effect;

-- name: ListFindings :many
-- One page of a pass' findings, after the one that is named.
SELECT * FROM reclaim.reconciliation_findings
WHERE tenant_id = @tenant_id AND reconciliation_id = @reconciliation_id
    AND (kind, subject_kind, subject_id, particular)
        > (@after_kind::text, @after_subject_kind::text, @after_subject::text, @after_particular::text)
ORDER BY kind, subject_kind, subject_id, particular
LIMIT @page_size;

-- name: ListFinalJobs :many
-- Which of these jobs have been closed for @grace_us.
WITH args AS (
    SELECT @tenant_id::text AS tenant_id, @job_ids::text[] AS job_ids, @grace_us::bigint AS grace_us
)
SELECT jobs.job_id FROM reclaim.jobs, args
WHERE jobs.tenant_id = args.tenant_id AND jobs.job_id = ANY (args.job_ids) AND jobs.state NOT IN ('running', 'dead_letter')
    AND jobs.updated_at < clock_timestamp() - args.grace_us * interval '1 microsecond';

-- name: ListFinalRefunds :many
-- Which of these refunds have been final for @grace_us.
WITH args AS (
    SELECT @tenant_id::text AS tenant_id, @refund_ids::text[] AS refund_ids, @grace_us::bigint AS grace_us
)
SELECT refunds.refund_id FROM reclaim.refunds, args
WHERE refunds.tenant_id = args.tenant_id AND refunds.refund_id = ANY (args.refund_ids)
    AND refunds.state NOT IN ('accepted', 'unknown', 'pending')
    AND refunds.updated_at < clock_timestamp() - args.grace_us * interval '1 microsecond';

-- name: HasStartWaiting :one
-- Whether the outbox is still about to start a run of the subject.
SELECT EXISTS (SELECT FROM reclaim.outbox WHERE delivered_at IS NULL AND kind = @kind AND tenant_id = @tenant_id
    AND subject_id = @subject_id)::boolean AS waiting;

-- name: HoldRefundLines :many
-- Keeps a page of the refunds that a channel lists, and answers those that are not as we have them: with the refund of that
-- number or, where the line has none, of that reference, and otherwise with the order that the payment bought. Lines that
-- belong to another tenant are left out.
WITH args AS (
    SELECT @tenant_id::text AS tenant_id, @reconciliation_id::text AS reconciliation_id, @channel::text AS channel
), given AS (
    SELECT unnest(@refs::text[]) AS reference, unnest(@numbers::text[]) AS number, unnest(@payments::text[]) AS payment,
        unnest(@aliases::text[]) AS alias, unnest(@amounts::bigint[]) AS amount, unnest(@currencies::text[]) AS currency,
        unnest(@outcomes::text[]) AS outcome, unnest(@codes::text[]) AS code, unnest(@made_at::timestamptz[]) AS made_at
), line AS MATERIALIZED (
    SELECT DISTINCT ON (given.reference) given.*, args.channel, args.reconciliation_id, args.tenant_id AS asking,
        coalesce(named.tenant_id, referred.tenant_id) AS refund_tenant,
        coalesce(named.refund_id, referred.refund_id) AS refund_id
    FROM args CROSS JOIN given
    LEFT JOIN LATERAL (
        SELECT refunds.tenant_id, refunds.refund_id FROM reclaim.refunds JOIN reclaim.orders USING (tenant_id, order_id)
        WHERE given.number <> '' AND refunds.refund_id = given.number AND orders.channel = args.channel
        LIMIT 1 -- looked up for each line: joined as a whole, every page would read all refunds
    ) AS named ON true
    LEFT JOIN LATERAL (
        SELECT refunds.tenant_id, refunds.refund_id FROM reclaim.refunds JOIN reclaim.orders USING (tenant_id, order_id)
        WHERE named.refund_id IS NULL AND refunds.channel_ref <> '' AND refunds.channel_ref = given.reference
            AND orders.channel = args.channel
        LIMIT 1
    ) AS referred ON true
), owned AS MATERIALIZED (
    SELECT line.*, bought.order_id, coalesce(line.refund_tenant, bought.tenant_id,
        CASE WHEN EXISTS (SELECT FROM reclaim.orders WHERE orders.channel = line.channel
                AND orders.channel_payment_id IN (line.payment, nullif(line.alias, '')))
            THEN '' ELSE 'unassigned' END) AS owner
    FROM line
    LEFT JOIN LATERAL (
        SELECT orders.tenant_id, orders.order_id FROM reclaim.orders
        WHERE line.refund_id IS NULL AND orders.tenant_id = line.asking AND orders.channel = line.channel
            AND orders.channel_payment_id IN (line.payment, nullif(line.alias, ''))
        LIMIT 1
    ) AS bought ON true
), kept AS (
    INSERT INTO reclaim.channel_lines AS past (tenant_id, channel, kind, reference, number, payment, amount, currency, outcome,
        code, made_at, reconciliation_id)
    SELECT owned.owner, owned.channel, 'refund', owned.reference, owned.number, owned.payment, owned.amount, owned.currency,
        owned.outcome, owned.code, owned.made_at, owned.reconciliation_id
    FROM owned WHERE owned.owner IN (owned.asking, 'unassigned')
    ON CONFLICT (tenant_id, channel, kind, reference) DO UPDATE SET number = excluded.number, payment = excluded.payment,
        amount = excluded.amount, currency = excluded.currency, outcome = excluded.outcome, code = excluded.code,
        made_at = excluded.made_at, seen_at = clock_timestamp(), reconciliation_id = excluded.reconciliation_id
), judged AS (
    SELECT owned.*, refund.state, refund.amount AS our_amount, refund.currency AS our_currency, refund.channel_ref,
        CASE
            WHEN owned.refund_id IS NULL THEN 'missing_here'
            WHEN refund.channel_ref <> '' AND refund.channel_ref <> owned.reference AND owned.outcome <> 'failed' THEN 'made_twice'
            WHEN refund.channel_ref <> '' AND refund.channel_ref <> owned.reference THEN 'agrees'
            WHEN orders.channel_payment_id NOT IN (owned.payment, owned.alias) THEN 'payment'
            WHEN refund.currency <> owned.currency THEN 'currency'
            WHEN refund.amount <> owned.amount THEN 'amount'
            WHEN owned.outcome = 'unknown' THEN 'unknown'
            WHEN (refund.state, owned.outcome) IN (('pending', 'pending'), ('succeeded', 'succeeded'), ('failed', 'failed'),
                ('reversed', 'failed')) THEN 'agrees'
            WHEN refund.state = 'succeeded' AND owned.outcome = 'failed' THEN 'late_reversal'
            ELSE 'status'
        END AS verdict
    FROM owned
    LEFT JOIN reclaim.refunds AS refund ON refund.tenant_id = owned.refund_tenant AND refund.refund_id = owned.refund_id
    LEFT JOIN reclaim.orders ON orders.tenant_id = refund.tenant_id AND orders.order_id = refund.order_id
    WHERE owned.owner IN (owned.asking, 'unassigned')
)
SELECT verdict::text AS verdict, owner::text AS owner, reference::text AS reference, number::text AS number, payment::text AS payment, alias::text AS alias,
    amount::bigint AS amount, currency::text AS currency, outcome::text AS outcome, code::text AS code, made_at::timestamptz AS made_at,
    coalesce(refund_id, '')::text AS refund_id, coalesce(order_id, '')::text AS order_id, coalesce(state, '')::text AS state,
    coalesce(our_amount, 0)::bigint AS our_amount, coalesce(our_currency, '')::text AS our_currency,
    coalesce(channel_ref, '')::text AS channel_ref
FROM judged WHERE verdict <> 'agrees'
ORDER BY reference;

-- name: ListUnlistedRefunds :many
-- One page of a tenant's refunds through a channel that were sent in the period, that the channel had acknowledged, and that
-- the pass did not find in its list.
WITH args AS (
    SELECT @tenant_id::text AS tenant_id, @reconciliation_id::text AS reconciliation_id, @channel::text AS channel,
        @since::timestamptz AS since, @until::timestamptz AS until, @after_refund::text AS after_refund
)
SELECT refund.refund_id FROM reclaim.refunds AS refund JOIN reclaim.orders USING (tenant_id, order_id), args
WHERE refund.tenant_id = args.tenant_id AND orders.channel = args.channel AND refund.refund_id > args.after_refund
    AND refund.first_sent_at >= args.since AND refund.first_sent_at < args.until
    AND refund.state IN ('pending', 'succeeded', 'reversed')
    AND NOT EXISTS (SELECT FROM reclaim.channel_lines AS line WHERE line.tenant_id = refund.tenant_id
        AND line.channel = args.channel AND line.kind = 'refund' AND line.reference = refund.channel_ref
        AND line.reconciliation_id = args.reconciliation_id)
ORDER BY refund.refund_id
LIMIT @page_size;

-- name: CountSentRefunds :one
-- How many of a tenant's refunds through a channel were sent in the period.
SELECT count(*) FROM reclaim.refunds AS refund JOIN reclaim.orders USING (tenant_id, order_id)
WHERE refund.tenant_id = @tenant_id AND orders.channel = @channel AND refund.first_sent_at >= @since::timestamptz
    AND refund.first_sent_at < @until::timestamptz;

-- name: HoldPaymentLines :many
-- Keeps a page of the payments that a channel lists, and answers those that were paid and that no order stands for, by
-- either of their names.
WITH args AS (
    SELECT @tenant_id::text AS tenant_id, @reconciliation_id::text AS reconciliation_id, @channel::text AS channel
), given AS (
    SELECT unnest(@refs::text[]) AS reference, unnest(@payments::text[]) AS payment, unnest(@aliases::text[]) AS alias,
        unnest(@amounts::bigint[]) AS amount, unnest(@currencies::text[]) AS currency, unnest(@outcomes::text[]) AS outcome,
        unnest(@codes::text[]) AS code, unnest(@made_at::timestamptz[]) AS made_at
), owned AS MATERIALIZED (
    SELECT DISTINCT ON (given.reference) given.*, args.channel, args.reconciliation_id, args.tenant_id AS asking, CASE
        WHEN EXISTS (SELECT FROM reclaim.orders WHERE orders.tenant_id = args.tenant_id AND orders.channel = args.channel
            AND orders.channel_payment_id IN (given.payment, nullif(given.alias, ''))) THEN args.tenant_id
        WHEN EXISTS (SELECT FROM reclaim.orders WHERE orders.channel = args.channel
            AND orders.channel_payment_id IN (given.payment, nullif(given.alias, ''))) THEN ''
        ELSE 'unassigned' END AS owner
    FROM args, given
), kept AS (
    INSERT INTO reclaim.channel_lines AS past (tenant_id, channel, kind, reference, payment, amount, currency, outcome, code,
        made_at, reconciliation_id)
    SELECT owned.owner, owned.channel, 'payment', owned.reference, owned.payment, owned.amount, owned.currency, owned.outcome,
        owned.code, owned.made_at, owned.reconciliation_id
    FROM owned WHERE owned.owner <> ''
    ON CONFLICT (tenant_id, channel, kind, reference) DO UPDATE SET payment = excluded.payment, amount = excluded.amount,
        currency = excluded.currency, outcome = excluded.outcome, code = excluded.code, made_at = excluded.made_at,
        seen_at = clock_timestamp(), reconciliation_id = excluded.reconciliation_id
)
SELECT reference::text AS reference, payment::text AS payment, amount::bigint AS amount, currency::text AS currency, code::text AS code,
    made_at::timestamptz AS made_at
FROM owned WHERE owner = 'unassigned' AND outcome = 'succeeded'
ORDER BY reference;

-- name: ListUnpaidOrders :many
-- One page of a tenant's orders through a channel that were added in the period, and that no payment which the channel ever
-- listed says to be paid as they have it, or whose payment an earlier order has under its other name or another tenant's; with
-- the best line there is.
WITH args AS (
    SELECT @tenant_id::text AS tenant_id, @channel::text AS channel,
        @since::timestamptz AS since, @until::timestamptz AS until, @after_order::text AS after_order
)
SELECT orders.order_id, orders.channel_payment_id, orders.paid, orders.currency,
    coalesce(line.reference, '')::text AS reference, coalesce(line.amount, 0)::bigint AS line_amount,
    coalesce(line.currency, '')::text AS line_currency, coalesce(line.outcome, '')::text AS line_outcome,
    coalesce(line.code, '')::text AS line_code, (twin.order_id IS NOT NULL)::boolean AS ordered_before,
    (CASE twin.tenant_id WHEN args.tenant_id THEN twin.order_id ELSE '' END)::text AS ordered_by
FROM args JOIN reclaim.orders ON orders.tenant_id = args.tenant_id
LEFT JOIN LATERAL (
    SELECT * FROM reclaim.channel_lines
    WHERE channel_lines.tenant_id = orders.tenant_id AND channel_lines.channel = args.channel AND channel_lines.kind = 'payment'
        AND (channel_lines.payment = orders.channel_payment_id OR channel_lines.reference = orders.channel_payment_id)
    ORDER BY channel_lines.outcome = 'succeeded' DESC, channel_lines.amount = orders.paid DESC, channel_lines.made_at DESC
    LIMIT 1
) AS line ON true
LEFT JOIN LATERAL (
    SELECT earlier.tenant_id, earlier.order_id FROM reclaim.orders AS earlier
    WHERE earlier.channel = args.channel
        AND earlier.channel_payment_id IN (orders.channel_payment_id, nullif(line.payment, ''), nullif(line.reference, ''))
        AND (earlier.created_at, earlier.tenant_id, earlier.order_id) < (orders.created_at, orders.tenant_id, orders.order_id)
    ORDER BY earlier.created_at, earlier.tenant_id, earlier.order_id
    LIMIT 1
) AS twin ON true
WHERE orders.channel = args.channel AND orders.order_id > args.after_order
    AND orders.created_at >= args.since AND orders.created_at < args.until
    AND (line.reference IS NULL OR line.outcome <> 'succeeded' OR line.amount <> orders.paid OR line.currency <> orders.currency
        OR twin.order_id IS NOT NULL)
ORDER BY orders.order_id
LIMIT @page_size;

-- name: CountOrders :one
-- How many orders of a tenant through a channel were added in the period.
SELECT count(*) FROM reclaim.orders
WHERE tenant_id = @tenant_id AND channel = @channel AND created_at >= @since AND created_at < @until;

-- name: FindIssue :one
-- The newest issue of a kind about a subject, and whether it was opened since.
WITH args AS (SELECT @since::timestamptz AS since)
SELECT issues.issue_id, (issues.opened_at >= args.since)::boolean AS is_new FROM reclaim.issues, args
WHERE issues.tenant_id = @tenant_id AND issues.subject_kind = @subject_kind AND issues.subject_id = @subject_id
    AND issues.kind = @kind
ORDER BY issues.opened_at DESC LIMIT 1;

-- name: LatestReconciliation :one
-- A tenant's newest pass that has ended.
SELECT * FROM reclaim.reconciliations WHERE tenant_id = @tenant_id AND ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT 1;
