package activities

import (
	"time"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Jobs makes the guarded writes of metered jobs. Every method may run any number of times, in parallel, and after its
// own reply was lost: exactly one run writes, and each answers with the row as it then is.
type Jobs struct {
	store *schema.Store
}

// NewJobs returns the activities of metered jobs on the given database.
func NewJobs(store *schema.Store) *Jobs { return &Jobs{store: store} }

// JobKey names a job.
type JobKey struct {
	Tenant string `json:"tenant"`
	JobID  string `json:"jobId"`
}

// Verdict is how a guarded write went.
type Verdict string

const (
	// Applied: this call made the movement.
	Applied Verdict = "applied"
	// Already: this very movement was made before.
	Already Verdict = "already"
	// Refused: the movement is not possible; the answer's Why says why and its row is what stands.
	Refused Verdict = "refused"
)

// Reasons for a refusal.
const (
	WhyConflict            = "conflict"
	WhyUnknownAccount      = "unknown_account"
	WhyDebt                = "debt"
	WhyInsufficientCredits = "insufficient_credits"
	WhyDelivered           = "delivered"
	WhyNotRunning          = "not_running"
	WhyNotRefunded         = "not_refunded"
	WhyAttemptsLeft        = "attempts_left"
	WhyClosed              = "closed"
	WhyIDReused            = "id_reused"
	WhyInvalid             = "invalid"
	WhyWrongState          = "wrong_state"
	WhyUnknownOrder        = "unknown_order"
	WhyOtherAccount        = "other_account"
)

// JobRow is what the database says of a job, small enough for a local activity's result. State is empty where there is
// no such job.
type JobRow struct {
	State           contract.JobState `json:"state"`
	Cost            int64             `json:"cost"`
	Refunded        bool              `json:"refunded,omitempty"`
	Reclaimed       bool              `json:"reclaimed,omitempty"`
	Attempts        int               `json:"attempts,omitempty"`
	Granted         int               `json:"granted,omitempty"`
	KeyAttempt      int               `json:"keyAttempt"`
	CancelRequested bool              `json:"cancelRequested,omitempty"`
	Reason          string            `json:"reason,omitempty"`
	CreatedAt       time.Time         `json:"createdAt"`
	// Age is Postgres' now minus CreatedAt when the row was read.
	Age time.Duration `json:"age"`
}

// Money returns what the job has moved so far.
func (r JobRow) Money() contract.Money {
	if r.State == "" {
		return contract.Money{}
	}
	return contract.MoneyOf(r.Cost, r.Refunded, r.Reclaimed)
}

// JobAnswer is the answer of a guarded write: how it went and the row that stands after it.
type JobAnswer struct {
	Verdict Verdict `json:"verdict"`
	// Why is the reason of a refusal.
	Why string `json:"why,omitempty"`
	Row JobRow `json:"row"`
	// Source is what became of a refund that leaves through the job's order.
	Source SourceRefund `json:"source,omitzero"`
}

// verdictOf splits a guard's answer into verdict and reason. A statement that came too late did nothing, and its clock
// estimate was wrong or it was long under way: that is an error to try again, not an answer.
func verdictOf(answer string) (Verdict, string) {
	switch answer {
	case "applied", "already":
		return Verdict(answer), ""
	default:
		return Refused, answer
	}
}

// jobGuardRow is the row that every guard of a job returns; the types that sqlc makes for the guards convert to it.
type jobGuardRow = db.RefundJobRow

func answerOf(row jobGuardRow) JobAnswer {
	verdict, why := verdictOf(row.Answer)
	return JobAnswer{Verdict: verdict, Why: why, Row: JobRow{
		State:           contract.JobState(row.State),
		Cost:            row.Cost,
		Refunded:        row.IsRefunded,
		Reclaimed:       row.IsReclaimed,
		Attempts:        int(row.Attempts),
		Granted:         int(row.Granted),
		KeyAttempt:      int(row.KeyAttempt),
		CancelRequested: row.CancelRequested,
		Reason:          row.Reason,
		CreatedAt:       row.CreatedAt.UTC(),
		Age:             time.Duration(row.AgeUs) * time.Microsecond,
	}}
}
