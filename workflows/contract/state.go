package contract

// JobState is where a job stands. The first two are open, the others closed.
type JobState string

// The states of a job.
const (
	// StateCharging: the charge has not been decided yet; only a run says this, no row ever does.
	StateCharging JobState = "charging"
	// StateRunning: charged, or refunded and awaiting late success or a retry.
	StateRunning JobState = "running"
	// StateDeadLetter: refunded, the attempts are used up, a person decides.
	StateDeadLetter JobState = "dead_letter"
	// StateSucceeded: delivered and charged once.
	StateSucceeded JobState = "succeeded"
	// StateDeclined: never charged; there is no row.
	StateDeclined JobState = "declined"
	// StateFailed: refunded; the work said that it can never succeed.
	StateFailed JobState = "failed"
	// StateCanceled: refunded; canceled and not delivered.
	StateCanceled JobState = "canceled"
	// StateWrittenOff: refunded; a person gave it up.
	StateWrittenOff JobState = "written_off"
)

// Open says whether the job may still move by itself or by a person's decision without new evidence.
func (s JobState) Open() bool { return s == StateCharging || s == StateRunning || s == StateDeadLetter }

// Action is a decision that a person takes about a job.
type Action string

const (
	// ActionRetry grants more attempts to a dead letter.
	ActionRetry Action = "retry"
	// ActionDeliver records, with evidence, that the customer has the result: a refund is reclaimed.
	ActionDeliver Action = "deliver"
	// ActionWriteOff gives the job up: it is refunded if it was not.
	ActionWriteOff Action = "write_off"
)

// Actions lists what a person can decide in this state. A closed job that was not delivered still takes deliver:
// evidence of a delivery counts whenever it comes.
func (s JobState) Actions() []Action {
	switch s {
	case StateRunning:
		return []Action{ActionDeliver, ActionWriteOff}
	case StateDeadLetter:
		return []Action{ActionRetry, ActionDeliver, ActionWriteOff}
	case StateFailed, StateCanceled, StateWrittenOff:
		return []Action{ActionDeliver}
	default:
		return []Action{}
	}
}
