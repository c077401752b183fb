-- name: GetJobRefund :one
-- The channel refund of a job, if it has one.
SELECT refund_id FROM reclaim.refunds WHERE tenant_id = @tenant_id AND job_id = @job_id;

-- name: ListRefundEntries :many
SELECT * FROM reclaim.ledger_entries
WHERE tenant_id = @tenant_id AND refund_id = @refund_id AND type IN ('payout', 'payout_return')
ORDER BY seq;

-- name: ListRefundResolutions :many
SELECT * FROM reclaim.resolutions
WHERE tenant_id = @tenant_id AND subject_kind = 'refund' AND subject_id = @refund_id
ORDER BY created_at, resolution_id LIMIT 10000;

-- name: ListRefundIssues :many
-- Issues about a refund, the oldest first, with who resolved them and why.
SELECT sqlc.embed(issue), coalesce(decision.operator, '')::text AS operator, coalesce(decision.reason, '')::text AS reason
FROM reclaim.issues AS issue
LEFT JOIN reclaim.resolutions AS decision ON decision.tenant_id = issue.tenant_id AND decision.subject_kind = 'issue'
    AND decision.subject_id = issue.issue_id AND decision.outcome = 'applied'
WHERE issue.tenant_id = @tenant_id AND issue.subject_kind = 'refund' AND issue.subject_id = @refund_id
ORDER BY issue.opened_at, issue.issue_id LIMIT 10000;

-- name: ListOpenRefunds :many
-- One page of refunds that are not final, after the refund (@after_tenant, @after_refund). An empty @only_tenant: all
-- tenants.
SELECT tenant_id, refund_id, order_id, state, updated_at FROM reclaim.refunds
WHERE state IN ('accepted', 'unknown', 'pending') AND (@only_tenant::text = '' OR tenant_id = @only_tenant)
    AND (tenant_id, refund_id) > (@after_tenant::text, @after_refund::text)
ORDER BY tenant_id, refund_id
LIMIT @page_size;

-- name: ListRefundsForReview :many
-- A tenant's refunds that are not final and wait for a person, the one that changed last first.
SELECT refund.refund_id, refund.order_id, refund.state, refund.resend_requested, refund.updated_at, orders.channel,
    coalesce(refund.look_until <= clock_timestamp(), false)::boolean AS gave_up,
    (SELECT count(*) FROM reclaim.issues WHERE issues.tenant_id = refund.tenant_id AND issues.subject_kind = 'refund'
        AND issues.subject_id = refund.refund_id AND issues.state = 'open')::integer AS open_issues
FROM reclaim.refunds AS refund JOIN reclaim.orders USING (tenant_id, order_id)
WHERE refund.tenant_id = @tenant_id AND refund.state IN ('accepted', 'unknown', 'pending') AND refund.needs_review
ORDER BY refund.updated_at DESC, refund.refund_id
LIMIT @at_most;

-- name: GetSourceRefusal :one
-- Why the refund of a job could not leave through its order.
SELECT detail FROM reclaim.job_events
WHERE tenant_id = @tenant_id AND job_id = @job_id AND kind = 'source_refused'
ORDER BY event_id DESC LIMIT 1;
