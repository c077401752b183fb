package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// AuditLimit is how many breaks an audit lists for each check, and how many open jobs and refunds without a run. The rest
// is counted.
const AuditLimit = 1000

// AuditReport is what an audit found. The ledger is sound if and only if no check is broken.
type AuditReport struct {
	// Tenant that was audited; empty means all of them.
	Tenant string `json:"tenant"`
	// TakenAt is when the snapshot was taken that every check looked at, by Postgres' clock.
	TakenAt time.Time `json:"takenAt"`
	Sound   bool      `json:"sound"`
	// Whole is false where only what is new since the checkpoint was proven: the counts are of that then.
	Whole      bool            `json:"whole"`
	Checkpoint AuditCheckpoint `json:"checkpoint"`
	// What was checked.
	Accounts   int64 `json:"accounts"`
	Entries    int64 `json:"entries"`
	Jobs       int64 `json:"jobs"`
	Orders     int64 `json:"orders"`
	Refunds    int64 `json:"refunds"`
	Operations int64 `json:"operations"`
	// Checks lists every check that was made, broken or not.
	Checks []AuditCheck `json:"checks"`
	// Breaks lists what is broken, at most AuditLimit for each check.
	Breaks []AuditBreak `json:"breaks"`
	// Runs tells about open jobs and refunds without a run. They break no invariant.
	Runs AuditRuns `json:"runs"`
	// Chain tells about the sealed entries, where it was verified.
	Chain *AuditChain `json:"chain,omitempty"`

	// place is where the ledger ends in the audit's snapshot, and wholeAt when all of it was last proven.
	place   db.AuditPlaceRow
	wholeAt time.Time
}

// AuditCheck is one rule that an audit proves.
type AuditCheck struct {
	Name string `json:"name"`
	// Rule says in words what holds where nothing is broken.
	Rule string `json:"rule"`
	// Broken counts what breaks the rule. Where it is above AuditLimit, the report's Breaks do not list all of it.
	Broken int64 `json:"broken"`
}

// AuditBreak is one place where a rule does not hold. Seq, an entry's, is 0 and the ids are empty where the break is not
// about one.
type AuditBreak struct {
	Check    string `json:"check"`
	Tenant   string `json:"tenant"`
	Account  string `json:"account"`
	Seq      int64  `json:"seq,omitempty"`
	JobID    string `json:"jobId,omitempty"`
	OrderID  string `json:"orderId,omitempty"`
	RefundID string `json:"refundId,omitempty"`
	Expected string `json:"expected"`
	Found    string `json:"found"`
}

// AuditRuns lists open jobs and refunds that have no open run: submitting such a job, or asking for such a refund, again
// takes it up.
type AuditRuns struct {
	// Checked is false where Temporal did not answer; Problem then says why.
	Checked bool   `json:"checked"`
	Problem string `json:"problem,omitempty"`
	// OpenJobs are the first AuditLimit of the jobs, and Count is how many there are; OpenRefunds and RefundCount likewise.
	OpenJobs    []OpenJob    `json:"openJobsWithoutRun"`
	Count       int64        `json:"count"`
	OpenRefunds []OpenRefund `json:"openRefundsWithoutRun"`
	RefundCount int64        `json:"refundCount"`
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
	{Name: "operation_entry", Rule: "each topup, order and adjust operation made exactly one entry, of its own kind"},
	{Name: "operation_subject", Rule: "each order and refund operation names an order or a refund that exists"},
	{Name: "order_reserved", Rule: "an order's reserved money and credits are the sums of its refunds that are on their way"},
	{Name: "order_refunded", Rule: "an order's refunded money and credits are the sums of its refunds that succeeded"},
	{Name: "order_capacity", Rule: "reserved and refunded are not negative and together at most what was paid, for money and credits"},
	{Name: "order_entry", Rule: "each order made exactly one topup, of its credits"},
	{Name: "entry_order", Rule: "each entry that names an order names one that exists, on the order's account"},
	{Name: "entry_refund", Rule: "each payout and payout_return belongs to a refund that exists"},
	{Name: "entry_credits", Rule: "each payout and payout_return moves exactly its refund's credits"},
	{Name: "entry_names", Rule: "each payout and payout_return names its refund's order and job"},
	{Name: "refund_order", Rule: "each refund belongs to an order that exists, in its currency"},
	{Name: "refund_job", Rule: "a refund's job exists, was refunded, costs its credits and is on the order's account"},
	{Name: "refund_amount", Rule: "each refund's amount is from 1 and its credits from 0 to 2^53-1"},
	{Name: "refund_state", Rule: "each refund is in a state that exists"},
	{Name: "refund_sent", Rule: "first_sent_at and send_count say that a refund was sent if and only if its state does"},
	{Name: "refund_end", Rule: "succeeded_at goes with a success, returned_at with a release, and both with a reversal"},
	{Name: "refund_reference", Rule: "a refund that is pending, succeeded or reversed has the channel's reference, which no other refund of that channel has"},
	{Name: "refund_entries", Rule: "a refund with credits has one payout, and one payout_return if it ended without effect; one without has none"},
	{Name: "refund_issue", Rule: "each reversed refund has an issue"},
	{Name: "event_refund", Rule: "each refund event belongs to a refund that exists"},
	{Name: "event_seq", Rule: "the events of a refund are numbered from 1 without a gap"},
	{Name: "event_chain", Rule: "each event begins in the state in which the one before ended"},
	{Name: "event_last", Rule: "the last event is the refund's event_seq and ends in the refund's state"},
}

// Audit proves the invariants of the ledger in one snapshot of the database; an empty tenant means all of them. It
// takes as long as the ledger needs: ctx is what bounds it. Whatever is broken is in the report, not in the error. A sound
// audit of all tenants is the checkpoint that AuditSinceCheckpoint builds on.
// Errors: BadInput, Unavailable (Postgres did not answer).
func (c *Client) Audit(ctx context.Context, tenant string) (AuditReport, error) {
	if tenant != "" {
		if err := contract.CheckID("tenant", tenant); err != nil {
			return AuditReport{}, err
		}
	}
	report, err := c.audit(ctx, tenant, (*AuditReport).prove)
	if err == nil {
		report.Runs = c.auditRuns(ctx, tenant)
	}
	return report, err
}

// ProveLedger proves a tenant's ledger as Audit does, without looking for its runs. With wholeEvery above 0 it proves what is new
// in the ledgers of all tenants, as AuditSinceCheckpoint does, and the tenant's whole ledger only where the last whole audit of
// all tenants is older than that or something is suspect, be it another tenant's: the report says why. It takes never longer
// than both.
// Errors: BadInput, Unavailable (Postgres did not answer).
func (c *Client) ProveLedger(ctx context.Context, tenant string, wholeEvery time.Duration) (AuditReport, error) {
	if err := contract.CheckID("tenant", tenant); err != nil {
		return AuditReport{}, err
	}
	doubt := ""
	if wholeEvery > 0 {
		report, err := c.audit(ctx, "", func(r *AuditReport, ctx context.Context, q *db.Queries) error {
			_, err := r.proveNew(ctx, q, wholeEvery)
			return err
		})
		if err != nil || report.Sound {
			return report, err
		}
		doubt = report.Checkpoint.Doubt
	}
	report, err := c.audit(ctx, tenant, (*AuditReport).prove)
	report.Checkpoint.Doubt = doubt
	return report, err
}

// audit runs a proof in one snapshot, and makes it a checkpoint where all tenants are sound.
func (c *Client) audit(
	ctx context.Context, tenant string, prove func(*AuditReport, context.Context, *db.Queries) error,
) (AuditReport, error) {
	report := AuditReport{Tenant: tenant, Breaks: []AuditBreak{}}
	var proven bool
	// On a standby the transaction is a read-only one, so that only the checkpoint cannot be written.
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead}
	err := pgx.BeginTxFunc(ctx, c.store.Pool, options, func(tx pgx.Tx) error {
		q := c.store.WithTx(tx)
		taken, err := q.PrepareAudit(ctx)
		if err != nil {
			return fmt.Errorf("prepare the audit: %w", err)
		}
		report.TakenAt = taken.UTC()
		place, err := q.AuditPlace(ctx)
		if err != nil {
			return fmt.Errorf("see where the ledger ends: %w", err)
		}
		report.place = place
		if err := prove(&report, ctx, q); err != nil {
			return err
		}
		proven = true
		if !report.Sound || tenant != "" {
			return nil
		}
		return report.writeCheckpoint(ctx, q)
	})
	switch {
	case err != nil && (!proven || ctx.Err() != nil):
		return AuditReport{}, unavailable("audit the ledger", err)
	case err != nil:
		report.Checkpoint.Problem = schema.Classify("write the checkpoint", err).Error()
	default:
		report.Checkpoint.Written = report.Sound && tenant == ""
	}
	return report, nil
}

// auditRow is the line that every check answers, and auditOrderRow that of checks of orders and their refunds.
type (
	auditRow      db.AuditEntriesRow
	auditOrderRow db.AuditOrdersRow
)

// prove runs the proofs on the queries' snapshot and, where one of them fails, the checks that name what is broken.
func (r *AuditReport) prove(ctx context.Context, q *db.Queries) error {
	sound, err := r.proofs(ctx, q)
	if err != nil {
		return err
	}
	r.Whole, r.wholeAt, r.Sound, r.Checks = true, r.TakenAt, true, slices.Clone(auditChecks)
	if sound {
		return nil
	}
	return r.name(ctx, q)
}

// name runs every check on the queries' snapshot.
func (r *AuditReport) name(ctx context.Context, q *db.Queries) error {
	what := db.AuditEntriesParams{OnlyTenant: r.Tenant, BreakLimit: AuditLimit}
	total := map[string]int64{}
	takeOrder := func(row auditOrderRow) {
		total[row.CheckName] = row.Total
		r.Breaks = append(r.Breaks, AuditBreak{
			Check: row.CheckName, Tenant: row.TenantID, Account: row.AccountID, Seq: row.Seq, JobID: row.JobID,
			OrderID: row.OrderID, RefundID: row.RefundID, Expected: row.Expected, Found: row.Found,
		})
	}
	take := func(row auditRow) {
		takeOrder(auditOrderRow{
			CheckName: row.CheckName, Total: row.Total, TenantID: row.TenantID, AccountID: row.AccountID, Seq: row.Seq,
			JobID: row.JobID, Expected: row.Expected, Found: row.Found,
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
	orders, err := q.AuditOrders(ctx, db.AuditOrdersParams(what))
	if err != nil {
		return fmt.Errorf("check the orders: %w", err)
	}
	for _, row := range orders {
		takeOrder(auditOrderRow(row))
	}
	orderEntries, err := q.AuditOrderEntries(ctx, db.AuditOrderEntriesParams(what))
	if err != nil {
		return fmt.Errorf("check the entries of orders and refunds: %w", err)
	}
	for _, row := range orderEntries {
		takeOrder(auditOrderRow(row))
	}
	refunds, err := q.AuditRefunds(ctx, db.AuditRefundsParams(what))
	if err != nil {
		return fmt.Errorf("check the refunds: %w", err)
	}
	for _, row := range refunds {
		takeOrder(auditOrderRow(row))
	}
	events, err := q.AuditRefundEvents(ctx, db.AuditRefundEventsParams(what))
	if err != nil {
		return fmt.Errorf("check the events of refunds: %w", err)
	}
	for _, row := range events {
		takeOrder(auditOrderRow(row))
	}
	for i := range r.Checks {
		r.Checks[i].Broken = total[r.Checks[i].Name]
	}
	r.Sound = len(r.Breaks) == 0
	return nil
}

// auditRuns looks for open jobs and refunds without a run. That Temporal is away is no finding about the ledger.
func (c *Client) auditRuns(ctx context.Context, tenant string) AuditRuns {
	runs := AuditRuns{Checked: true, OpenJobs: []OpenJob{}, OpenRefunds: []OpenRefund{}}
	err := c.OpenJobsWithoutRun(ctx, tenant, func(job OpenJob) error {
		if runs.Count++; runs.Count <= AuditLimit {
			runs.OpenJobs = append(runs.OpenJobs, job)
		}
		return nil
	})
	if err == nil {
		err = c.OpenRefundsWithoutRun(ctx, tenant, func(refund OpenRefund) error {
			if runs.RefundCount++; runs.RefundCount <= AuditLimit {
				runs.OpenRefunds = append(runs.OpenRefunds, refund)
			}
			return nil
		})
	}
	if err != nil {
		runs.Checked, runs.Problem = false, contract.AsError(err).Message
	}
	return runs
}
