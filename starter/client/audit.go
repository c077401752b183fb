package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// AuditLimit is how many breaks an audit lists for each check, and how many open jobs without a run. The rest is counted.
const AuditLimit = 1000

// AuditReport is what an audit found. The ledger is sound if and only if no check is broken.
type AuditReport struct {
	// Tenant that was audited; empty means all of them.
	Tenant string `json:"tenant"`
	// TakenAt is when the snapshot was taken that every check looked at, by Postgres' clock.
	TakenAt time.Time `json:"takenAt"`
	Sound   bool      `json:"sound"`
	// What was checked.
	Accounts   int64 `json:"accounts"`
	Entries    int64 `json:"entries"`
	Jobs       int64 `json:"jobs"`
	Operations int64 `json:"operations"`
	// Checks lists every check that was made, broken or not.
	Checks []AuditCheck `json:"checks"`
	// Breaks lists what is broken, at most AuditLimit for each check.
	Breaks []AuditBreak `json:"breaks"`
	// Runs tells about open jobs without a run. They break no invariant.
	Runs AuditRuns `json:"runs"`
}

// AuditCheck is one rule that an audit proves.
type AuditCheck struct {
	Name string `json:"name"`
	// Rule says in words what holds where nothing is broken.
	Rule string `json:"rule"`
	// Broken counts what breaks the rule. Where it is above AuditLimit, the report's Breaks do not list all of it.
	Broken int64 `json:"broken"`
}

// AuditBreak is one place where a rule does not hold. Seq is 0 and JobID empty where the break is not about one.
type AuditBreak struct {
	Check    string `json:"check"`
	Tenant   string `json:"tenant"`
	Account  string `json:"account"`
	Seq      int64  `json:"seq,omitempty"`
	JobID    string `json:"jobId,omitempty"`
	Expected string `json:"expected"`
	Found    string `json:"found"`
}

// AuditRuns lists open jobs that have no open run: submitting such a job again takes it up.
type AuditRuns struct {
	// Checked is false where Temporal did not answer; Problem then says why.
	Checked bool   `json:"checked"`
	Problem string `json:"problem,omitempty"`
	// OpenJobs are the first AuditLimit of them, and Count is how many there are.
	OpenJobs []OpenJob `json:"openJobsWithoutRun"`
	Count    int64     `json:"count"`
}

// auditChecks are the rules that the statements of audit.sql prove, under the names that these answer.
var auditChecks = []AuditCheck{
	{Name: "entry_seq", Rule: "the entries of an account are numbered from 1 without a gap"},
	{Name: "entry_balance", Rule: "each balance_after is the one before plus the amount"},
	{Name: "entry_debt", Rule: "only a reclaim or an adjust takes a balance below zero"},
	{Name: "entry_amount", Rule: "each amount has the sign of its type and is not 0"},
	{Name: "entry_subject", Rule: "each entry has a known type, a reason, and the job or refund that its type needs"},
	{Name: "account_missing", Rule: "each entry's account exists"},
	{Name: "account_empty", Rule: "an account without entries has balance 0 and seq 0"},
	{Name: "account_seq", Rule: "an account's seq is its newest entry's and the number of its entries"},
	{Name: "account_balance", Rule: "an account's balance is its newest entry's balance_after"},
	{Name: "account_sum", Rule: "an account's balance is the sum of its entries"},
	{Name: "entry_job", Rule: "each charge, refund and reclaim belongs to a job that exists"},
	{Name: "entry_account", Rule: "each charge, refund and reclaim is on its job's account"},
	{Name: "entry_cost", Rule: "each charge, refund and reclaim moves exactly its job's cost"},
	{Name: "job_account", Rule: "each job's account exists"},
	{Name: "job_cost", Rule: "each job's cost is from 0 to 2^53-1"},
	{Name: "job_entries", Rule: "a job's entries are those that its cost and flags say; a job of cost 0 has none"},
	{Name: "job_net", Rule: "a job's entries sum to -cost if it was delivered or is running unrefunded, and to 0 otherwise"},
	{Name: "job_state", Rule: "each job is in a state that exists"},
	{Name: "job_refunded", Rule: "refunded_at goes with is_refunded, and only a running or delivered job is unrefunded"},
	{Name: "job_reclaimed", Rule: "reclaimed_at goes with is_reclaimed, which goes with a refund and a delivery"},
	{Name: "job_delivered", Rule: "delivered_at goes with the state succeeded, and an output only with it"},
	{Name: "entry_operation", Rule: "each topup and adjust entry was made by an operation"},
	{Name: "operation_entry", Rule: "each topup and adjust operation made exactly one entry, of its own kind"},
}

// Audit proves the invariants of the ledger in one snapshot of the database; an empty tenant means all of them. It
// takes as long as the ledger needs: ctx is what bounds it. Whatever is broken is in the report, not in the error.
// Errors: BadInput, Unavailable (Postgres did not answer).
func (c *Client) Audit(ctx context.Context, tenant string) (AuditReport, error) {
	if tenant != "" {
		if err := contract.CheckID("tenant", tenant); err != nil {
			return AuditReport{}, err
		}
	}
	report := AuditReport{Tenant: tenant, Breaks: []AuditBreak{}}
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, c.store.Pool, snapshot, func(tx pgx.Tx) error {
		return report.prove(ctx, c.store.WithTx(tx))
	})
	if err != nil {
		return AuditReport{}, unavailable("audit the ledger", err)
	}
	report.Runs = c.auditRuns(ctx, tenant)
	return report, nil
}

// auditRow is the line that every check answers.
type auditRow db.AuditEntriesRow

// prove runs every check on the queries' snapshot.
func (r *AuditReport) prove(ctx context.Context, q *db.Queries) error {
	if err := q.PrepareAudit(ctx); err != nil {
		return fmt.Errorf("prepare the audit: %w", err)
	}
	counts, err := q.AuditCounts(ctx, r.Tenant)
	if err != nil {
		return fmt.Errorf("count what there is to check: %w", err)
	}
	r.TakenAt = counts.TakenAt.UTC()
	r.Accounts, r.Entries, r.Jobs, r.Operations = counts.Accounts, counts.Entries, counts.Jobs, counts.Operations
	what := db.AuditEntriesParams{OnlyTenant: r.Tenant, BreakLimit: AuditLimit}
	total := map[string]int64{}
	take := func(row auditRow) {
		total[row.CheckName] = row.Total
		r.Breaks = append(r.Breaks, AuditBreak{
			Check: row.CheckName, Tenant: row.TenantID, Account: row.AccountID, Seq: row.Seq, JobID: row.JobID,
			Expected: row.Expected, Found: row.Found,
		})
	}
	entries, err := q.AuditEntries(ctx, what)
	if err != nil {
		return fmt.Errorf("check the entries: %w", err)
	}
	for _, row := range entries {
		take(auditRow(row))
	}
	accounts, err := q.AuditAccounts(ctx, db.AuditAccountsParams(what))
	if err != nil {
		return fmt.Errorf("check the accounts: %w", err)
	}
	for _, row := range accounts {
		take(auditRow(row))
	}
	jobEntries, err := q.AuditJobEntries(ctx, db.AuditJobEntriesParams(what))
	if err != nil {
		return fmt.Errorf("check the entries of jobs: %w", err)
	}
	for _, row := range jobEntries {
		take(auditRow(row))
	}
	jobs, err := q.AuditJobs(ctx, db.AuditJobsParams(what))
	if err != nil {
		return fmt.Errorf("check the jobs: %w", err)
	}
	for _, row := range jobs {
		take(auditRow(row))
	}
	operations, err := q.AuditOperations(ctx, db.AuditOperationsParams(what))
	if err != nil {
		return fmt.Errorf("check the operations: %w", err)
	}
	for _, row := range operations {
		take(auditRow(row))
	}
	for _, check := range auditChecks {
		check.Broken = total[check.Name]
		r.Checks = append(r.Checks, check)
	}
	r.Sound = len(r.Breaks) == 0
	return nil
}

// auditRuns looks for open jobs without a run. That Temporal is away is no finding about the ledger.
func (c *Client) auditRuns(ctx context.Context, tenant string) AuditRuns {
	runs := AuditRuns{Checked: true, OpenJobs: []OpenJob{}}
	err := c.OpenJobsWithoutRun(ctx, tenant, func(job OpenJob) error {
		if runs.Count++; runs.Count <= AuditLimit {
			runs.OpenJobs = append(runs.OpenJobs, job)
		}
		return nil
	})
	if err != nil {
		runs.Checked, runs.Problem = false, err.Error()
		if known, ok := errors.AsType[*contract.Error](err); ok {
			runs.Problem = known.Message
		}
	}
	return runs
}
