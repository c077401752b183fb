-- name: AddSettlementFile :one
-- Begins to store a file. No row: the channel's file of that content is there.
INSERT INTO reclaim.settlement_files (tenant_id, channel, file_hash, name, bytes, actor)
VALUES (@tenant_id, @channel, @file_hash, @name, @bytes, @actor)
ON CONFLICT DO NOTHING
RETURNING *;

-- name: AddSettlementChunk :exec
INSERT INTO reclaim.settlement_chunks (tenant_id, file_no, chunk, content) VALUES (@tenant_id, @file_no, @chunk, @content);

-- name: GetSettlementFile :one
SELECT * FROM reclaim.settlement_files WHERE tenant_id = @tenant_id AND channel = @channel AND file_hash = @file_hash;

-- name: GetSettlementChunk :one
SELECT content FROM reclaim.settlement_chunks WHERE tenant_id = @tenant_id AND file_no = @file_no AND chunk = @chunk;

-- name: AddSettlementLines :exec
-- Keeps lines of a file, each once.
INSERT INTO reclaim.settlement_lines (tenant_id, file_no, channel, line, raw, transaction_id, kind, ordinary, reference, number,
    payment, alias, amount, currency, gross, fee, net, settled, code, made_at, problem)
SELECT @tenant_id, @file_no, @channel, given.line, given.raw, given.transaction_id, given.kind, given.ordinary, given.reference,
    given.number, given.payment, given.alias, given.amount, given.currency, given.gross, given.fee, given.net, given.settled,
    given.code, nullif(given.made_at, '0001-01-01 00:00:00+00'), given.problem
FROM (
    SELECT unnest(@lines::integer[]) AS line, unnest(@raws::bytea[]) AS raw, unnest(@transactions::text[]) AS transaction_id,
        unnest(@kinds::text[]) AS kind, unnest(@ordinary::boolean[]) AS ordinary, unnest(@refs::text[]) AS reference,
        unnest(@numbers::text[]) AS number, unnest(@payments::text[]) AS payment, unnest(@aliases::text[]) AS alias,
        unnest(@amounts::bigint[]) AS amount, unnest(@currencies::text[]) AS currency, unnest(@grosses::bigint[]) AS gross,
        unnest(@fees::bigint[]) AS fee, unnest(@nets::bigint[]) AS net, unnest(@settled_in::text[]) AS settled,
        unnest(@codes::text[]) AS code, unnest(@made_at::timestamptz[]) AS made_at, unnest(@problems::text[]) AS problem
) AS given
ON CONFLICT DO NOTHING;

-- name: FindSettlementReading :one
-- How many lines of a file are kept, whether all are, and the last of them.
SELECT count(line.line)::bigint AS lines, coalesce(max(line.line), 0)::integer AS last_line,
    EXISTS (SELECT FROM reclaim.settlement_readings AS reading
        WHERE reading.tenant_id = @tenant_id AND reading.file_no = @file_no)::boolean AS is_whole
FROM reclaim.settlement_lines AS line WHERE line.tenant_id = @tenant_id AND line.file_no = @file_no;

-- name: EndSettlementReading :exec
-- Notes that a file was read to its end.
INSERT INTO reclaim.settlement_readings (tenant_id, file_no, lines, since, until)
SELECT @tenant_id::text, @file_no::bigint, count(*),
    date_trunc('day', min(line.made_at) AT TIME ZONE 'UTC') AT TIME ZONE 'UTC',
    (date_trunc('day', max(line.made_at) AT TIME ZONE 'UTC') + interval '1 day') AT TIME ZONE 'UTC'
FROM reclaim.settlement_lines AS line WHERE line.tenant_id = @tenant_id AND line.file_no = @file_no
ON CONFLICT DO NOTHING;

-- name: ListCorrectedFiles :many
-- The earlier files of the channel that have days and transactions in common with this one.
SELECT earlier.file_no, earlier.since::timestamptz AS since, earlier.until::timestamptz AS until, file.file_hash
FROM reclaim.settlement_readings AS this
JOIN reclaim.settlement_readings AS earlier ON earlier.tenant_id = this.tenant_id AND earlier.file_no < this.file_no
    AND earlier.since < this.until AND this.since < earlier.until
JOIN reclaim.settlement_files AS file ON file.tenant_id = earlier.tenant_id AND file.file_no = earlier.file_no
WHERE this.tenant_id = @tenant_id AND this.file_no = @file_no AND file.channel = @channel
    AND EXISTS (SELECT FROM reclaim.settlement_lines AS line
        JOIN reclaim.settlement_lines AS other ON other.tenant_id = line.tenant_id AND other.channel = line.channel
            AND other.transaction_id = line.transaction_id AND other.file_no = earlier.file_no
        WHERE line.tenant_id = this.tenant_id AND line.file_no = this.file_no)
ORDER BY earlier.file_no;

-- name: ListGoneLines :many
-- One page of the lines of an earlier file whose transactions this one lacks although they are of its days, as the newest file
-- before it has them. They are noted as gone.
WITH args AS (
    SELECT @tenant_id::text AS tenant_id, @channel::text AS channel, @file_no::bigint AS file_no,
        @earlier_no::bigint AS earlier_no, @after_line::integer AS after_line, @page_size::integer AS page_size
), lost AS MATERIALIZED (
    SELECT claim.* FROM args
    JOIN reclaim.settlement_readings AS this ON this.tenant_id = args.tenant_id AND this.file_no = args.file_no
    JOIN reclaim.settlement_claims AS claim ON claim.tenant_id = args.tenant_id AND claim.file_no = args.earlier_no
    WHERE claim.line > args.after_line AND claim.made_at >= this.since AND claim.made_at < this.until
        AND NOT EXISTS (SELECT FROM reclaim.settlement_lines AS newer WHERE newer.tenant_id = claim.tenant_id
            AND newer.channel = claim.channel AND newer.transaction_id = claim.transaction_id AND newer.file_no <= args.file_no
            AND (newer.file_no > claim.file_no OR newer.file_no = claim.file_no AND newer.line < claim.line))
        AND NOT EXISTS (SELECT FROM reclaim.settlement_gone AS gone WHERE gone.tenant_id = claim.tenant_id
            AND gone.channel = claim.channel AND gone.transaction_id = claim.transaction_id
            AND gone.file_no > claim.file_no AND gone.file_no < args.file_no)
    ORDER BY claim.line
    LIMIT (SELECT args.page_size FROM args)
), noted AS (
    INSERT INTO reclaim.settlement_gone (tenant_id, channel, transaction_id, file_no)
    SELECT lost.tenant_id, lost.channel, lost.transaction_id, args.file_no FROM lost, args
    ON CONFLICT DO NOTHING
)
SELECT line::integer AS line, transaction_id::text AS transaction_id, kind::text AS kind, reference::text AS reference,
    amount::bigint AS amount, currency::text AS currency, net::bigint AS net, settled::text AS settled, whose::text AS whose,
    coalesce(refund_id, '')::text AS refund_id, coalesce(order_id, '')::text AS order_id
FROM lost ORDER BY line;

-- name: JudgeSettlementLines :many
-- One page of a file's lines, each with what it is about, how it stands to what we have, and what an earlier file said of its
-- transaction. Of several lines for the same movement of a refund the first counts.
WITH args AS (
    SELECT @tenant_id::text AS tenant_id, @channel::text AS channel, @file_no::bigint AS file_no,
        @after_line::integer AS after_line
), corrected AS (
    SELECT unnest(@since::timestamptz[]) AS since, unnest(@until::timestamptz[]) AS until
), claim AS MATERIALIZED (
    SELECT claim.*, claim.reference <> '' AND refund.channel_ref <> '' AND claim.reference <> refund.channel_ref AS other_ref,
        refund.state, refund.amount AS our_amount, refund.currency AS our_currency, refund.channel_ref, refund.first_sent_at,
        refund.succeeded_at, refund.returned_at, coalesce(its.channel_payment_id, '') AS our_payment,
        bought.paid, bought.currency AS paid_currency,
        listed.made_at AS listed_at, coalesce(listed.outcome, '') AS listed_outcome, coalesce(listed.amount, 0) AS listed_amount
    FROM (
        SELECT paged.tenant_id, paged.file_no, paged.line FROM args JOIN reclaim.settlement_lines AS paged
            ON paged.tenant_id = args.tenant_id AND paged.file_no = args.file_no AND paged.line > args.after_line
        ORDER BY paged.line
        LIMIT @page_size
    ) AS page
    CROSS JOIN LATERAL (
        SELECT * FROM reclaim.settlement_claims AS claims WHERE claims.tenant_id = page.tenant_id
            AND claims.file_no = page.file_no AND claims.line = page.line
        LIMIT 1
    ) AS claim
    -- Each is looked up for its line: joined as a whole, every page would read all of them.
    LEFT JOIN LATERAL (
        SELECT * FROM reclaim.refunds WHERE claim.whose = 'ours' AND refunds.tenant_id = claim.tenant_id
            AND refunds.refund_id = claim.refund_id LIMIT 1
    ) AS refund ON true
    LEFT JOIN LATERAL (
        SELECT * FROM reclaim.orders WHERE orders.tenant_id = refund.tenant_id AND orders.order_id = refund.order_id LIMIT 1
    ) AS its ON true
    LEFT JOIN LATERAL (
        SELECT * FROM reclaim.orders WHERE orders.tenant_id = claim.tenant_id AND orders.order_id = claim.order_id LIMIT 1
    ) AS bought ON true
    LEFT JOIN reclaim.channel_lines AS listed ON listed.tenant_id = claim.tenant_id AND listed.channel = claim.channel
        AND listed.kind = 'refund' AND claim.refund_id IS NOT NULL AND listed.reference = claim.reference
), placed AS (
    SELECT claim.*, expected.amount AS expected,
        EXISTS (SELECT FROM reclaim.settlement_lines AS twin WHERE twin.tenant_id = claim.tenant_id AND twin.channel = claim.channel
            AND twin.transaction_id = claim.transaction_id AND twin.file_no + 0 = claim.file_no AND twin.line + 0 < claim.line)
            AS repeated,
        EXISTS (SELECT FROM reclaim.settlement_lines AS newer WHERE newer.tenant_id = claim.tenant_id
            AND newer.channel = claim.channel AND newer.transaction_id = claim.transaction_id AND newer.file_no > claim.file_no)
        OR EXISTS (SELECT FROM reclaim.settlement_gone AS gone WHERE gone.tenant_id = claim.tenant_id
            AND gone.channel = claim.channel AND gone.transaction_id = claim.transaction_id
            AND gone.file_no > claim.file_no) AS superseded,
        claim.other_ref OR claim.state IS NOT NULL AND (EXISTS (SELECT FROM reclaim.settlement_book AS first
            WHERE first.tenant_id = claim.tenant_id AND first.channel = claim.channel AND first.kind = claim.kind
                AND first.number <> '' AND first.number = claim.refund_id
                AND NOT (first.reference <> '' AND claim.channel_ref <> '' AND first.reference <> claim.channel_ref)
                AND first.transaction_id <> claim.transaction_id
                AND (first.file_no, first.line) < (claim.file_no, claim.line))
            OR EXISTS (SELECT FROM reclaim.settlement_book AS first
            WHERE first.tenant_id = claim.tenant_id AND first.channel = claim.channel AND first.kind = claim.kind
                AND first.reference <> '' AND first.reference = coalesce(nullif(claim.reference, ''), claim.channel_ref)
                AND NOT (first.reference <> '' AND claim.channel_ref <> '' AND first.reference <> claim.channel_ref)
                AND first.transaction_id <> claim.transaction_id
                AND (first.file_no, first.line) < (claim.file_no, claim.line))) AS duplicate,
        claim.kind = 'refund' AND claim.state IN ('unknown', 'pending', 'failed') AND (EXISTS (SELECT FROM reclaim.settlement_book AS back
            WHERE back.tenant_id = claim.tenant_id AND back.channel = claim.channel AND back.kind = 'refund_failure'
                AND back.number <> '' AND back.number = claim.refund_id)
            OR EXISTS (SELECT FROM reclaim.settlement_book AS back
            WHERE back.tenant_id = claim.tenant_id AND back.channel = claim.channel AND back.kind = 'refund_failure'
                AND back.reference <> '' AND back.reference = claim.reference)) AS came_back,
        past.file_no AS past_no, coalesce(past.was, '') AS was,
        past.file_no IS NOT NULL AND (past.kind, past.code, past.reference, past.number, past.payment, past.amount, past.currency,
            past.gross, past.fee, past.net, past.settled, past.problem) <> (claim.kind, claim.code, claim.reference, claim.number,
            claim.payment, claim.amount, claim.currency, claim.gross, claim.fee, claim.net, claim.settled, claim.problem)
            OR past.file_no IS NOT NULL AND past.made_at IS DISTINCT FROM claim.made_at AS changed
    FROM claim
    LEFT JOIN LATERAL (
        SELECT movement.amount FROM reclaim.settlement_expected AS movement
        WHERE claim.whose = 'ours' AND movement.tenant_id = claim.tenant_id AND movement.refund_id = claim.refund_id
            AND movement.kind = claim.kind
        LIMIT 1
    ) AS expected ON true
    LEFT JOIN LATERAL (
        SELECT before.*, format('%s %s of %s %s, net %s %s', before.kind, before.reference, before.amount, before.currency,
            before.net, before.settled) AS was
        FROM reclaim.settlement_lines AS before
        WHERE before.tenant_id = claim.tenant_id AND before.channel = claim.channel
            AND before.transaction_id = claim.transaction_id AND before.file_no < claim.file_no
        ORDER BY before.file_no DESC, before.line
        LIMIT 1
    ) AS past ON true
)
SELECT line::integer AS line, transaction_id::text AS transaction_id, kind::text AS kind, reference::text AS reference,
    number::text AS number, payment::text AS payment, alias::text AS alias, amount::bigint AS amount, currency::text AS currency,
    gross::bigint AS gross, fee::bigint AS fee, net::bigint AS net, settled::text AS settled, code::text AS code, made_at,
    problem::text AS problem, whose::text AS whose, coalesce(refund_id, '')::text AS refund_id,
    coalesce(order_id, '')::text AS order_id, coalesce(state, '')::text AS state, coalesce(our_amount, 0)::bigint AS our_amount,
    coalesce(our_currency, '')::text AS our_currency, our_payment::text AS our_payment, coalesce(channel_ref, '')::text AS channel_ref, first_sent_at,
    succeeded_at, returned_at, listed_at, listed_outcome::text AS listed_outcome, listed_amount::bigint AS listed_amount,
    coalesce(paid, 0)::bigint AS paid, coalesce(paid_currency, '')::text AS paid_currency,
    coalesce(expected, 0)::bigint AS expected, was::text AS was,
    CASE WHEN repeated OR superseded THEN ''
        WHEN changed THEN 'changed'
        WHEN past_no IS NULL AND EXISTS (SELECT FROM corrected
            WHERE placed.made_at >= corrected.since AND placed.made_at < corrected.until) THEN 'added'
        ELSE '' END::text AS change,
    CASE WHEN whose = 'theirs' THEN 'theirs'
        WHEN repeated THEN 'repeated'
        WHEN superseded THEN 'superseded'
        WHEN problem <> '' THEN 'unreadable'
        WHEN whose = 'channel' AND ordinary THEN 'ordinary'
        WHEN whose = 'channel' THEN 'category'
        WHEN whose = 'nobody' THEN 'nobody'
        WHEN kind = 'payment' AND paid_currency <> currency THEN 'payment_currency'
        WHEN kind = 'payment' AND paid <> amount THEN 'payment_amount'
        WHEN kind = 'payment' THEN 'agrees'
        WHEN state IS NULL THEN 'missing_here'
        WHEN duplicate THEN 'duplicate'
        WHEN payment <> '' AND our_payment NOT IN (payment, alias) THEN 'payment'
        WHEN our_currency <> currency THEN 'currency'
        WHEN our_amount <> amount THEN 'amount'
        WHEN expected IS NOT NULL THEN 'agrees'
        WHEN came_back THEN 'came_back'
        WHEN kind = 'refund_failure' AND state = 'succeeded' THEN 'late_reversal'
        ELSE 'status' END::text AS verdict
FROM placed ORDER BY line;

-- name: ExpectedMovement :one
-- What a refund is expected to have moved in the way that a line of that kind tells, 0 where nothing.
SELECT coalesce(sum(expected.amount), 0)::bigint AS amount FROM reclaim.settlement_expected AS expected
WHERE expected.tenant_id = @tenant_id AND expected.refund_id = @refund_id AND expected.kind = @kind;

-- name: CarryOverRefunds :many
-- Notes one page of the movements of our refunds that no file has yet, and answers them. Those of the file's days are missing
-- in its sum.
WITH args AS (
    SELECT @tenant_id::text AS tenant_id, @reconciliation_id::text AS reconciliation_id, @channel::text AS channel,
        @file_no::bigint AS file_no, @after_refund::text AS after_refund, @after_kind::text AS after_kind
), expected AS MATERIALIZED (
    SELECT expected.* FROM args JOIN reclaim.settlement_expected AS expected ON expected.tenant_id = args.tenant_id
        AND expected.channel = args.channel AND expected.refund_id >= args.after_refund
        AND (expected.refund_id, expected.kind) > (args.after_refund, args.after_kind)
    WHERE NOT EXISTS (SELECT FROM reclaim.settlement_book AS line
        WHERE line.tenant_id = expected.tenant_id AND line.channel = expected.channel AND line.kind = expected.kind
            AND line.number <> '' AND line.number = expected.refund_id
            AND (line.reference = '' OR expected.channel_ref = '' OR line.reference = expected.channel_ref))
        AND NOT EXISTS (SELECT FROM reclaim.settlement_book AS line
        WHERE line.tenant_id = expected.tenant_id AND line.channel = expected.channel AND line.kind = expected.kind
            AND line.reference <> '' AND line.reference = expected.channel_ref)
    ORDER BY expected.refund_id, expected.kind
    LIMIT @page_size
), noted AS (
    INSERT INTO reclaim.reconciliation_findings (tenant_id, reconciliation_id, kind, subject_kind, subject_id, particular,
        effect, detail, difference, currency)
    SELECT args.tenant_id, args.reconciliation_id, 'settlement_outstanding', 'refund', expected.refund_id, expected.kind, 'noted',
        format('%s of %s %s is %s here since %s; %s; no settlement file has it yet: it is carried over',
            CASE expected.kind WHEN 'refund' THEN 'the refund' ELSE 'the return of the refund' END, abs(expected.amount),
            expected.currency, expected.state, to_char(expected.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
            coalesce(format('the channel lists it as %s, made at %s', listed.outcome,
                to_char(listed.made_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')), 'the channel''s list was not asked for it')),
        CASE WHEN expected.at >= reading.since AND expected.at < reading.until THEN -expected.amount ELSE 0 END, expected.currency
    FROM expected CROSS JOIN args
    JOIN reclaim.settlement_readings AS reading ON reading.tenant_id = args.tenant_id AND reading.file_no = args.file_no
    LEFT JOIN reclaim.channel_lines AS listed ON listed.tenant_id = args.tenant_id AND listed.channel = args.channel
        AND listed.kind = 'refund' AND listed.reference = expected.channel_ref
    ON CONFLICT DO NOTHING
)
SELECT expected.refund_id::text AS refund_id, expected.kind::text AS kind FROM expected
ORDER BY expected.refund_id, expected.kind;

-- name: SumSettlement :many
-- The sums of a file's lines by kind and currency, without other tenants' and repeated ones, the most lines first.
SELECT claim.kind::text AS kind, claim.settled::text AS currency, bool_or(claim.ordinary)::boolean AS ordinary,
    count(*) AS lines, min(claim.line)::integer AS first_line, sum(claim.gross::numeric)::text AS gross,
    sum(claim.fee::numeric)::text AS fee, sum(claim.net::numeric)::text AS net,
    sum(claim.gross::numeric - claim.fee - claim.net)::text AS difference
FROM reclaim.settlement_claims AS claim
WHERE claim.tenant_id = @tenant_id AND claim.file_no = @file_no AND claim.whose <> 'theirs' AND claim.kind <> ''
    -- by the transaction, and not through the file's lines before it
    AND (SELECT true FROM reclaim.settlement_lines AS twin WHERE twin.tenant_id = claim.tenant_id
        AND twin.channel = claim.channel AND twin.transaction_id = claim.transaction_id AND twin.file_no + 0 = claim.file_no
        AND twin.line + 0 < claim.line LIMIT 1) IS NULL
GROUP BY claim.kind, claim.settled
ORDER BY count(*) DESC, claim.kind, claim.settled;

-- name: SumSettledRefunds :many
-- What a file says that was refunded of our payments, what by our books it should say, and what the pass' findings explain of
-- the difference, by currency: amounts that came back count against those that went out.
WITH args AS (
    SELECT @tenant_id::text AS tenant_id, @reconciliation_id::text AS reconciliation_id, @channel::text AS channel,
        @file_no::bigint AS file_no
), line AS MATERIALIZED (
    SELECT claim.refund_id, claim.reference, claim.currency, claim.kind,
        CASE claim.kind WHEN 'refund' THEN claim.amount ELSE -claim.amount END::numeric AS moved
    FROM args
    JOIN reclaim.settlement_claims AS claim ON claim.tenant_id = args.tenant_id AND claim.file_no = args.file_no
    CROSS JOIN LATERAL (
        SELECT book.line FROM reclaim.settlement_book AS book
        WHERE book.tenant_id = claim.tenant_id AND book.file_no = claim.file_no AND book.line = claim.line
        LIMIT 1
    ) AS counted
    WHERE claim.whose = 'ours' AND claim.kind IN ('refund', 'refund_failure')
), held AS MATERIALIZED (
    -- the movements of ours that this file has as the first, and those of its days that no file has
    SELECT expected.currency, expected.amount::numeric AS moved
    FROM args
    JOIN reclaim.settlement_expected AS expected ON expected.tenant_id = args.tenant_id AND expected.channel = args.channel
    JOIN reclaim.settlement_readings AS reading ON reading.tenant_id = args.tenant_id AND reading.file_no = args.file_no
    LEFT JOIN LATERAL (
        SELECT book.file_no, book.line FROM reclaim.settlement_book AS book
        WHERE book.tenant_id = expected.tenant_id AND book.channel = expected.channel AND book.kind = expected.kind
            AND book.number <> '' AND book.number = expected.refund_id
            AND (book.reference = '' OR expected.channel_ref = '' OR book.reference = expected.channel_ref)
        ORDER BY book.file_no, book.line
        LIMIT 1
    ) AS by_number ON true
    LEFT JOIN LATERAL (
        SELECT book.file_no, book.line FROM reclaim.settlement_book AS book
        WHERE book.tenant_id = expected.tenant_id AND book.channel = expected.channel AND book.kind = expected.kind
            AND book.reference <> '' AND book.reference = expected.channel_ref
        ORDER BY book.file_no, book.line
        LIMIT 1
    ) AS by_reference ON true
    CROSS JOIN LATERAL (SELECT CASE WHEN by_number.file_no IS NULL THEN by_reference.file_no
        WHEN by_reference.file_no IS NULL THEN by_number.file_no
        ELSE least(by_number.file_no, by_reference.file_no) END AS file_no) AS first
    WHERE first.file_no = args.file_no
        OR first.file_no IS NULL AND expected.at >= reading.since AND expected.at < reading.until
), told AS (
    SELECT finding.currency, finding.difference::numeric AS moved
    FROM args JOIN reclaim.reconciliation_findings AS finding ON finding.tenant_id = args.tenant_id
        AND finding.reconciliation_id = args.reconciliation_id
    WHERE finding.kind LIKE 'settlement\_%' AND finding.kind <> 'settlement_unreadable' AND finding.difference <> 0
)
SELECT every.currency::text AS currency, coalesce(sum(every.theirs), 0)::text AS theirs, coalesce(sum(every.ours), 0)::text AS ours,
    (coalesce(sum(every.theirs), 0) - coalesce(sum(every.ours), 0))::text AS difference,
    coalesce(sum(every.explained), 0)::text AS explained
FROM (
    SELECT line.currency, line.moved AS theirs, NULL::numeric AS ours, NULL::numeric AS explained FROM line
    UNION ALL SELECT held.currency, NULL, held.moved, NULL FROM held
    UNION ALL SELECT told.currency, NULL, NULL, told.moved FROM told
) AS every
GROUP BY every.currency ORDER BY every.currency;
