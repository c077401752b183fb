-- name: GetJob :one
SELECT * FROM reclaim.jobs WHERE tenant_id = @tenant_id AND job_id = @job_id;

-- name: GetJobSpec :one
SELECT spec FROM reclaim.jobs WHERE tenant_id = @tenant_id AND job_id = @job_id;

-- name: GetJobOutput :one
SELECT output, reason FROM reclaim.jobs WHERE tenant_id = @tenant_id AND job_id = @job_id;

-- name: ListJobEntries :many
SELECT * FROM reclaim.ledger_entries
WHERE tenant_id = @tenant_id AND job_id = @job_id AND type IN ('charge', 'refund', 'reclaim')
ORDER BY seq;

-- name: ListJobEvents :many
SELECT * FROM reclaim.job_events WHERE tenant_id = @tenant_id AND job_id = @job_id ORDER BY event_id LIMIT 10000;

-- name: ListJobResolutions :many
SELECT * FROM reclaim.resolutions
WHERE tenant_id = @tenant_id AND subject_kind = 'job' AND subject_id = @job_id
ORDER BY created_at, resolution_id LIMIT 10000;

-- name: ListOpenJobs :many
-- One page of jobs that are not closed, after the job (@after_tenant, @after_job). An empty @only_tenant: all tenants.
SELECT tenant_id, job_id, state, updated_at FROM reclaim.jobs
WHERE state IN ('running', 'dead_letter') AND (@only_tenant::text = '' OR tenant_id = @only_tenant)
    AND (tenant_id, job_id) > (@after_tenant::text, @after_job::text)
ORDER BY tenant_id, job_id
LIMIT @page_size;

-- name: DatabaseClock :one
SELECT clock_timestamp()::timestamptz AS now;
