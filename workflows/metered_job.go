package workflows

import (
	"encoding/json"
	"fmt"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// meteredJob is the memory of one run. Whatever it holds about money is a copy of Postgres' row.
type meteredJob struct {
	// asked is the run's own context, which ends when a cancel is requested; nothing is ever called with it.
	asked workflow.Context
	// input is the job as this run was given it.
	input       string
	job         contract.Job
	fingerprint string
	key         activities.JobKey
	badInput    error
	// refused is why this run's own input is refused; it may yet run the stored job that it was sent messages for.
	refused error

	calls workflow.Mutex
	row   activities.JobRow
	// moved is what became of the refund that leaves through the job's order.
	moved  activities.SourceRefund
	charge *activities.ChargeAnswer
	ladder ladder
	// toldCharged is set once a submission was answered with charged.
	toldCharged bool

	attempts     []*attempt
	delivery     *delivery
	settled      *delivery
	ended        ending
	endedAttempt int
	endedError   string

	promise workflow.Future

	pause      pausing
	pauseTimer workflow.Future

	probe       probing
	probeResult workflow.Future
	probeTimer  workflow.Future
	probeAsked  int
	// inDoubt is the attempt whose outcome is unknown, 0 for none.
	inDoubt int

	outcomes    workflow.ReceiveChannel
	resolutions workflow.ReceiveChannel
	// stirred is set by whatever a handler changed, so that the loop looks again.
	stirred bool

	attention  string
	attributes attributes
	details    details
}

// MeteredJob is the run of one metered job: it charges, runs the work, refunds when the promise passes or the work
// fails, and reclaims when the work delivers late. Its input is a contract.Job as JSON and its result a
// contract.JobResult. It fails with error type BadInput or Conflict, before anything was moved.
func MeteredJob(ctx workflow.Context, input converter.RawValue) (*contract.JobResult, error) {
	// Every call is made in a context that a cancel does not reach: a cancel is one more fact for the loop, and whatever
	// it means for the money is decided there.
	own, _ := workflow.NewDisconnectedContext(ctx)
	j := &meteredJob{asked: ctx, calls: workflow.NewMutex(own)}
	j.badInput = j.readInput(own, input.Payload().GetData())
	if err := j.listen(own); err != nil {
		return nil, err
	}
	if j.refused = j.badInput; j.refused != nil && (!j.addressed() || !j.adoptNamed(own)) {
		return nil, refusal(j.refused)
	}
	if err := j.begin(own); err != nil {
		return nil, err
	}
	for {
		j.collect(own)
		switch step := next(j.terms(), j.situation()); step {
		case stepFinish:
			// The result may need a read, during which messages can arrive: it comes before the last look for them.
			result := j.result(own)
			if !j.finished(own) {
				continue
			}
			j.showDetails(own)
			if j.refused != nil {
				return nil, refusal(j.refused)
			}
			return result, nil
		case stepWait:
			if j.row.State == contract.StateDeadLetter && j.historyIsLong(own) {
				return nil, j.continueAsNew(own)
			}
			j.awaitChange(own)
		default:
			if (step == stepWork || step == stepProbe) && j.historyIsLong(own) {
				return nil, j.continueAsNew(own)
			}
			j.take(own, step)
		}
	}
}

func (j *meteredJob) readInput(ctx workflow.Context, raw []byte) (err error) {
	j.input = string(raw)
	if j.job, err = contract.ParseJob(raw); err != nil {
		return err
	}
	if id := workflow.GetInfo(ctx).WorkflowExecution.ID; id != j.job.WorkflowID() {
		return contract.NewError(contract.CodeBadInput, contract.RetryNewKey, fmt.Sprintf(
			"the workflow id of this job must be %q, not %q: the id is what keeps a job to one run", j.job.WorkflowID(), id), nil)
	}
	j.key = activities.JobKey{Tenant: j.job.Tenant, JobID: j.job.JobID}
	j.fingerprint, err = j.job.Fingerprint()
	return err
}

// addressed says whether somebody told this run something: a message that waits, or a cancel. A run that is refused its own
// input then takes up the job that its id names, since that is what was meant and nothing that was accepted may be lost,
// and answers with its refusal at that job's end.
func (j *meteredJob) addressed() bool {
	return j.stirred || j.outcomes.Len() > 0 || j.resolutions.Len() > 0 || j.asked.Err() != nil
}

// adopt makes the stored spec of a job this run's input.
func (j *meteredJob) adopt(spec string) error {
	stored, err := contract.ParseJob([]byte(spec))
	if err != nil {
		return err
	}
	if j.fingerprint, err = stored.Fingerprint(); err != nil {
		return err
	}
	j.input, j.job, j.key = spec, stored, activities.JobKey{Tenant: stored.Tenant, JobID: stored.JobID}
	return nil
}

// adoptNamed adopts the job that the workflow id names, and reports whether there is one.
func (j *meteredJob) adoptNamed(ctx workflow.Context) bool {
	parts := strings.Split(workflow.GetInfo(ctx).WorkflowExecution.ID, "/")
	if len(parts) != 3 || parts[0] != "job" || !contract.ValidID(parts[1]) || !contract.ValidID(parts[2]) {
		return false
	}
	var spec string
	key := activities.JobKey{Tenant: parts[1], JobID: parts[2]}
	err := workflow.ExecuteActivity(readCall(ctx), jobActivities.ReadJobSpec, key).Get(ctx, &spec)
	return err == nil && j.adopt(spec) == nil
}

// begin charges the job, or takes up the one that is there.
func (j *meteredJob) begin(ctx workflow.Context) error {
	j.showDetails(ctx)
	answer := j.chargeJob(ctx, activities.ChargeRequest{
		JobKey: j.key, Account: j.job.Account, Cost: j.job.Cost, Fingerprint: j.fingerprint, Spec: j.input,
		Reason: "job " + j.job.JobID + " started", Ladder: int(newestLadder), Source: j.source(),
	})
	j.ladder = ladder(answer.Ladder)
	if answer.Verdict == activities.Already && !answer.SameSpec {
		if err := j.adopt(j.readSpec(ctx)); err != nil {
			workflow.GetLogger(ctx).Error("The stored spec cannot be read; this run goes by its own input", "error", err)
		}
	}
	j.charge = &answer
	if wrong := j.orderRefusal(); wrong != nil {
		quiet := j.finished(ctx) && !j.addressed()
		if quiet || j.refused != nil || !j.adoptNamed(ctx) {
			return refusal(wrong)
		}
		j.refused = wrong
		return j.begin(ctx)
	}
	takenUp := answer.Verdict == activities.Already
	if answer.Verdict == activities.Refused && answer.Why == activities.WhyConflict {
		j.refused = contract.ConflictOf(j.job)
		if j.finished(ctx) && !j.addressed() {
			return refusal(j.refused)
		}
		if err := j.adopt(j.readSpec(ctx)); err != nil {
			return refusal(j.refused)
		}
		takenUp = true
	}
	j.showAttributes(ctx)
	j.tellBeginning(ctx)
	if takenUp && j.row.State.Open() {
		switch {
		case j.row.KeyAttempt <= j.row.Attempts:
			// The last attempt ended unknown.
			j.inDoubt = j.row.Attempts
		case j.row.State == contract.StateRunning:
			// An earlier run may have had the next attempt in flight.
			j.inDoubt = j.row.Attempts + 1
		}
		if j.row.State == contract.StateRunning && j.job.Work.Probe != "" {
			j.probe = probeDue
		}
	}
	if left := j.job.Promise.Std() - j.row.Age; j.row.State.Open() && !j.row.Refunded && j.hasRow() {
		j.promise = workflow.NewTimerWithOptions(ctx, max(left, 0),
			workflow.TimerOptions{Summary: "promise " + j.job.Promise.String()})
	}
	return nil
}

// obey takes in the row that a call answered.
func (j *meteredJob) obey(ctx workflow.Context, row activities.JobRow, moved activities.SourceRefund) {
	if j.charge != nil {
		j.tellRow(ctx, row, moved)
	}
	j.row = row
	if moved != (activities.SourceRefund{}) {
		j.moved = moved
	}
	if j.charge != nil {
		j.showAttributes(ctx)
	}
}

func (j *meteredJob) hasRow() bool { return j.row.State != "" }

func (j *meteredJob) state() contract.JobState {
	switch {
	case j.charge == nil:
		return contract.StateCharging
	case !j.hasRow():
		return contract.StateDeclined
	default:
		return j.row.State
	}
}

func (j *meteredJob) terms() terms {
	return terms{refundOnFailure: j.job.RefundsOnFailure(), maxAttempts: j.job.Retry.MaxAttempts}
}

func (j *meteredJob) situation() situation {
	s := situation{
		state:           j.state(),
		refunded:        j.row.Refunded,
		attempts:        j.row.Attempts,
		granted:         j.row.Granted,
		cancelRecorded:  j.row.CancelRequested,
		cancelRequested: j.row.CancelRequested || j.asked.Err() != nil,
		promisePassed:   j.promise != nil && j.promise.IsReady(),
		delivery:        j.delivery != nil,
		ended:           j.ended,
		probe:           j.probe,
		pause:           j.pause,
	}
	for _, a := range j.attempts {
		switch {
		case a.superseded:
			s.leftover = true
		case a.stopping:
			s.work = workStopping
		default:
			s.work = workRunning
		}
	}
	return s
}

// collect takes in everything that has happened since the last look. It asks every source, so that a delivery and a
// passed promise that arrived together are both known before either is acted on.
func (j *meteredJob) collect(ctx workflow.Context) {
	j.stirred = false
	if !j.hasRow() {
		j.collectSignals(ctx)
		return
	}
	j.collectWork(ctx)
	j.collectProbe(ctx)
	j.collectSignals(ctx)
	if j.pause == pauseRunning && j.pauseTimer.IsReady() {
		j.pause = pauseNotDue
	}
}

// awaitChange blocks until there is something for collect to take in.
func (j *meteredJob) awaitChange(ctx workflow.Context) {
	j.showDetails(ctx)
	cancelKnown := j.situation().cancelRequested
	promiseKnown := j.situation().promisePassed
	err := workflow.Await(ctx, func() bool {
		if j.stirred || j.outcomes.Len() > 0 || j.resolutions.Len() > 0 {
			return true
		}
		for _, a := range j.attempts {
			if a.result.IsReady() {
				return true
			}
		}
		return !cancelKnown && j.asked.Err() != nil ||
			!promiseKnown && j.promise != nil && j.promise.IsReady() ||
			j.pause == pauseRunning && j.pauseTimer.IsReady() ||
			j.probe == probeAsking && j.probeResult.IsReady() ||
			j.probe == probePausing && j.probeTimer.IsReady()
	})
	if err != nil {
		panic(err)
	}
}

// take carries one step out.
func (j *meteredJob) take(ctx workflow.Context, step step) {
	ended := activities.EndedAttempt{
		Attempt: j.endedAttempt, Failed: j.ended == endingFailed || j.ended == endingFatal, Error: j.endedError,
	}
	switch step {
	case stepSettle:
		d := j.delivery
		answer := j.settleJob(ctx, activities.SettleRequest{
			JobKey: j.key, Attempt: d.attempt, Output: stored(d.output), Reason: d.reason, Source: j.source(),
		})
		if answer.Verdict == activities.Applied {
			j.settled = d
		}
		j.delivery = nil
		j.forgetEnded()
	case stepRefund:
		s := j.situation()
		j.refundJob(ctx, activities.RefundRequest{
			JobKey: j.key, Reason: j.refundReason(s), Ended: ended, Cancel: s.cancelRequested, Source: j.source(),
		})
		j.forgetEnded()
	case stepRecord:
		j.recordAttempt(ctx, activities.RecordRequest{JobKey: j.key, Ended: ended})
		j.forgetEnded()
	case stepFail:
		j.closeJob(ctx, activities.CloseRequest{
			JobKey: j.key, State: contract.StateFailed, Ended: ended, Source: j.source(),
			Reason: fmt.Sprintf("attempt %d says that it can never succeed: %s", ended.Attempt, ended.Error),
		})
		j.forgetEnded()
	case stepCancel:
		j.closeJob(ctx, activities.CloseRequest{
			JobKey: j.key, State: contract.StateCanceled, Reason: "canceled and not delivered", Source: j.source(),
		})
	case stepPark:
		j.parkJob(ctx, activities.ParkRequest{
			JobKey: j.key, MaxAttempts: j.job.Retry.MaxAttempts,
			Reason: fmt.Sprintf("%d attempts are used up: a person decides", j.row.Attempts),
		})
	case stepStop:
		for _, a := range j.attempts {
			a.stopping = true
			a.stop()
		}
	case stepProbe:
		j.startProbe(ctx)
	case stepPause:
		pause := j.job.Retry.Backoff(j.row.Attempts)
		j.pauseTimer = workflow.NewTimerWithOptions(ctx, pause,
			workflow.TimerOptions{Summary: fmt.Sprintf("pause before attempt %d", j.row.Attempts+1)})
		j.pause = pauseRunning
	case stepWork:
		j.startAttempt(ctx)
	default:
		panic(fmt.Sprintf("step %d has nothing to carry out", step))
	}
}

// orderRefusal is the error of a job that was not charged because its refund's order is missing, or nil.
func (j *meteredJob) orderRefusal() error {
	if j.charge.Why != activities.WhyUnknownOrder && j.charge.Why != activities.WhyOtherAccount {
		return nil
	}
	return contract.NewError(contract.CodeBadInput, contract.RetryNewKey, fmt.Sprintf(
		"orderId must name an order of account %s, which %s is not: refundTo \"source\" sends the refund through it",
		j.job.Account, j.job.OrderID), nil)
}

// source is the order through which a refund leaves, none where it stays on the account.
func (j *meteredJob) source() activities.SourceOrder {
	if j.job.RefundTo != contract.RefundToSource {
		return activities.SourceOrder{}
	}
	return activities.SourceOrder{OrderID: j.job.OrderID, Account: j.job.Account}
}

func (j *meteredJob) forgetEnded() { j.ended, j.endedAttempt, j.endedError = endingNone, 0, "" }

func (j *meteredJob) refundReason(s situation) string {
	switch {
	case s.cancelRequested:
		return "canceled"
	case s.ended == endingFailed && j.job.RefundsOnFailure():
		return fmt.Sprintf("attempt %d failed: %s", j.endedAttempt, j.endedError)
	case s.promisePassed:
		return fmt.Sprintf("the promise of %s passed without delivery", j.job.Promise)
	default:
		return fmt.Sprintf("%d attempts are used up without delivery", j.row.Attempts)
	}
}

// finished waits for handlers that are still answering and takes in what arrived meanwhile. It reports whether nothing
// did: then the run may return, and not a message is lost.
func (j *meteredJob) finished(ctx workflow.Context) bool {
	if err := workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }); err != nil {
		panic(err)
	}
	return !j.stirred && j.outcomes.Len() == 0 && j.resolutions.Len() == 0
}

// historyIsLong says whether the run should go on in a new one, with a short history: the new run finds the row and
// takes the job up. Only between two attempts, when nothing is in flight that it could miss.
func (j *meteredJob) historyIsLong(ctx workflow.Context) bool {
	return workflow.GetInfo(ctx).GetContinueAsNewSuggested() && len(j.attempts) == 0 &&
		workflow.AllHandlersFinished(ctx) && j.outcomes.Len() == 0 && j.resolutions.Len() == 0
}

func (j *meteredJob) continueAsNew(ctx workflow.Context) error {
	return workflow.NewContinueAsNewError(ctx, contract.MeteredJobWorkflow, converter.NewRawValue(&commonpb.Payload{
		Metadata: map[string][]byte{converter.MetadataEncoding: []byte(converter.MetadataEncodingJSON)}, Data: []byte(j.input),
	}))
}

// stored is an output as the row keeps it: text, or nothing.
func stored(output json.RawMessage) *string {
	if len(output) == 0 || string(output) == "null" {
		return nil
	}
	text := string(output)
	return &text
}

// result tells how the job ended. Where the row was settled by another run or message than this one's delivery, its
// stored output and reason count.
func (j *meteredJob) result(ctx workflow.Context) *contract.JobResult {
	money := j.row.Money()
	result := &contract.JobResult{
		JobID: j.job.JobID, State: j.state(), Money: money, Net: money.Net(), Attempts: j.row.Attempts,
		Late: j.row.Reclaimed, Reason: j.row.Reason, Output: json.RawMessage("null"),
	}
	switch {
	case result.State == contract.StateDeclined:
		result.Reason = declinedInWords(j.job, *j.charge)
	case result.State == contract.StateSucceeded && j.settled != nil:
		result.Output, result.Reason = j.settled.output, j.settled.reason
	default:
		if result.State == contract.StateSucceeded {
			kept := j.readOutput(ctx)
			j.settled = &delivery{output: kept.Output, reason: kept.Reason}
			result.Output, result.Reason = kept.Output, kept.Reason
		}
	}
	if len(result.Output) == 0 {
		result.Output = json.RawMessage("null")
	}
	return result
}
