-- name: OpenIssue :exec
-- Opens an issue once for each id.
INSERT INTO reclaim.issues (tenant_id, issue_id, kind, subject_kind, subject_id, evidence)
VALUES (@tenant_id, @issue_id, @kind, @subject_kind, @subject_id, @evidence)
ON CONFLICT DO NOTHING;

-- name: ListIssues :many
-- Issues of a tenant, the newest first; only open ones unless @resolved_too.
SELECT * FROM reclaim.issues
WHERE tenant_id = @tenant_id AND (state = 'open' OR @resolved_too::boolean)
ORDER BY opened_at DESC, issue_id
LIMIT @at_most;

-- name: GetIssue :one
SELECT * FROM reclaim.issues WHERE tenant_id = @tenant_id AND issue_id = @issue_id;

-- name: ResolveIssue :one
-- Closes an open issue by a person's decision and records it; its refund needs no more review once its last issue is
-- closed and it is final. No row: there is no such issue.
WITH args AS (
    SELECT @resolution_id::text AS resolution_id, @operator::text AS operator, @reason::text AS reason
), issue AS (
    SELECT * FROM reclaim.issues
    WHERE issues.tenant_id = @tenant_id AND issues.issue_id = @issue_id
    FOR UPDATE
), changed AS (
    UPDATE reclaim.issues SET state = 'resolved', resolved_at = clock_timestamp()
    FROM issue
    WHERE issue.state = 'open' AND issues.tenant_id = issue.tenant_id AND issues.issue_id = issue.issue_id
    RETURNING issues.*
), recorded AS (
    INSERT INTO reclaim.resolutions (tenant_id, subject_kind, subject_id, resolution_id, action, operator, reason,
        outcome, state)
    SELECT changed.tenant_id, 'issue', changed.issue_id, args.resolution_id, 'resolve', args.operator, args.reason,
        'applied', 'resolved'
    FROM changed, args
), reviewed AS (
    UPDATE reclaim.refunds SET needs_review = false, updated_at = clock_timestamp()
    FROM changed
    WHERE changed.subject_kind = 'refund' AND refunds.tenant_id = changed.tenant_id
        AND refunds.refund_id = changed.subject_id AND refunds.state NOT IN ('accepted', 'unknown', 'pending')
        AND NOT EXISTS (SELECT FROM reclaim.issues AS other WHERE other.tenant_id = changed.tenant_id
            AND other.subject_kind = 'refund' AND other.subject_id = changed.subject_id AND other.state = 'open'
            AND other.issue_id <> changed.issue_id)
)
SELECT CASE WHEN changed.issue_id IS NOT NULL THEN 'applied' ELSE 'already' END::text AS answer, coalesce(changed.state, issue.state)::text AS state,
    issue.subject_kind::text AS subject_kind, issue.subject_id::text AS subject_id
FROM issue LEFT JOIN changed ON true;
