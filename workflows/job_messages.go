package workflows

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// listen registers every handler, so that the Web UI lists them with their meaning from the first moment on.
func (j *meteredJob) listen(ctx workflow.Context) error {
	j.outcomes = workflow.GetSignalChannelWithOptions(ctx, contract.OutcomeSignal, workflow.SignalChannelOptions{
		Description: "Work reported from outside: " +
			`{"attempt":1,"state":"succeeded|failed","output":…,"error":"…","source":"who reports"}`,
	})
	j.resolutions = workflow.GetSignalChannelWithOptions(ctx, contract.ResolveMessage, workflow.SignalChannelOptions{
		Description: "A person's decision, each under an id of its own: " +
			`{"id":"…","action":"retry|deliver|write_off","operator":"who","reason":"why","evidence":"…","attempts":1}`,
	})
	if err := workflow.SetQueryHandlerWithOptions(ctx, contract.StatusQuery,
		func() (contract.JobStatus, error) { return j.status(), nil },
		workflow.QueryHandlerOptions{Description: "Where the job stands, what it waits for, what a person can do now."},
	); err != nil {
		return err
	}
	if err := workflow.SetUpdateHandlerWithOptions(ctx, contract.AwaitChargeUpdate, j.awaitCharge,
		workflow.UpdateHandlerOptions{
			Validator:   j.validateAwaitCharge,
			Description: "Answers whether the job was charged. The payload is the job's input.",
		}); err != nil {
		return err
	}
	return workflow.SetUpdateHandlerWithOptions(ctx, contract.ResolveMessage, j.resolveByUpdate,
		workflow.UpdateHandlerOptions{
			Validator:   j.validateResolve,
			Description: "A person's decision, as the signal of this name, answered with how it went.",
		})
}

// refusal turns an error of the contract into the application error that carries its code as type.
func refusal(err error) error {
	return temporal.NewApplicationErrorWithOptions(err.Error(), string(contract.CodeOf(err)),
		temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{err}})
}

func (j *meteredJob) validateAwaitCharge(_ workflow.Context, raw converter.RawValue) error {
	if j.badInput != nil {
		return refusal(j.badInput)
	}
	if string(raw.Payload().GetData()) == j.input {
		return nil
	}
	asked, err := contract.ParseJob(raw.Payload().GetData())
	if err != nil {
		return refusal(err)
	}
	fingerprint, err := asked.Fingerprint()
	if err != nil {
		return refusal(err)
	}
	if asked.WorkflowID() != j.job.WorkflowID() || fingerprint != j.fingerprint {
		return refusal(contract.ConflictOf(j.job))
	}
	return nil
}

// awaitCharge answers the verdict of the charge. The first submission of a run whose charge was made by it is told
// charged, every other one already.
func (j *meteredJob) awaitCharge(ctx workflow.Context, _ converter.RawValue) (contract.ChargeVerdict, error) {
	own, _ := workflow.NewDisconnectedContext(ctx)
	if err := workflow.Await(own, func() bool { return j.charge != nil }); err != nil {
		return contract.ChargeVerdict{}, err
	}
	verdict := contract.ChargeVerdict{Balance: j.charge.Balance}
	switch {
	case j.charge.Verdict == activities.Refused && j.charge.Why == activities.WhyConflict:
		return verdict, refusal(contract.ConflictOf(j.job))
	case j.orderRefusal() != nil:
		return verdict, refusal(j.orderRefusal())
	case j.charge.Verdict == activities.Refused:
		verdict.Verdict, verdict.Reason = contract.VerdictDeclined, declinedInWords(j.job, *j.charge)
	case j.charge.Verdict == activities.Applied && !j.toldCharged:
		verdict.Verdict, verdict.Reason = contract.VerdictCharged, fmt.Sprintf("charged %d", j.row.Cost)
		j.toldCharged = true
	default:
		j.tell(own, 0, "submitted again: it was charged before, so nothing was moved")
		j.showDetails(own)
		verdict.Verdict = contract.VerdictAlready
		verdict.Reason = fmt.Sprintf("charged before; the job is %s", j.row.State)
	}
	return verdict, nil
}

func declinedInWords(job contract.Job, answer activities.ChargeAnswer) string {
	switch answer.Why {
	case activities.WhyUnknownAccount:
		return fmt.Sprintf("there is no account %s: top it up first", job.Account)
	case activities.WhyDebt:
		return fmt.Sprintf("account %s owes %d, and the job costs %d: top it up by %d or more first", job.Account, -answer.Balance,
			job.Cost, job.Cost-answer.Balance)
	default:
		return fmt.Sprintf("account %s has %d of the %d that the job costs", job.Account, answer.Balance, job.Cost)
	}
}

func (j *meteredJob) validateResolve(_ workflow.Context, raw converter.RawValue) error {
	if j.badInput != nil && j.key.JobID == "" {
		return refusal(j.badInput)
	}
	if _, err := contract.ParseResolution(raw.Payload().GetData()); err != nil {
		return refusal(err)
	}
	return nil
}

func (j *meteredJob) resolveByUpdate(ctx workflow.Context, raw converter.RawValue) (contract.ResolutionAnswer, error) {
	own, _ := workflow.NewDisconnectedContext(ctx)
	decision, err := contract.ParseResolution(raw.Payload().GetData())
	if err != nil {
		return contract.ResolutionAnswer{}, refusal(err)
	}
	if err := workflow.Await(own, func() bool { return j.charge != nil }); err != nil {
		return contract.ResolutionAnswer{}, err
	}
	if !j.hasRow() {
		return contract.ResolutionAnswer{}, refusal(contract.NewError(contract.CodeBadResolution, contract.RetryNever,
			"the job was never charged, so there is nothing to decide", nil))
	}
	answer := j.resolve(own, activities.ResolveRequest{Resolution: decision})
	if answer.Verdict == activities.Refused || answer.Outcome == contract.ResolutionRefused {
		return contract.ResolutionAnswer{}, refusal(
			contract.NewError(contract.CodeBadResolution, contract.RetryNewKey, answer.Refusal, nil))
	}
	return contract.ResolutionAnswer{ID: decision.ID, Outcome: answer.Outcome, State: answer.State}, nil
}

// resolve takes a decision to Postgres and what it changes into the run's memory.
func (j *meteredJob) resolve(ctx workflow.Context, r activities.ResolveRequest) activities.ResolveAnswer {
	r.JobKey, r.Source = j.key, j.source()
	answer := j.resolveJob(ctx, r)
	if answer.Refusal != "" {
		j.details.tellRefusal(ctx, r.Resolution.Operator, answer.Refusal)
	}
	if answer.Verdict == activities.Applied && r.Resolution.Action == contract.ActionRetry {
		j.pause = pauseNotDue
		if j.inDoubt > 0 && j.job.Work.Probe != "" {
			j.probe, j.probeAsked = probeDue, 0
		}
	}
	j.stirred = true
	return answer
}

// collectSignals takes in every report and decision that has arrived.
func (j *meteredJob) collectSignals(ctx workflow.Context) {
	var raw converter.RawValue
	for j.outcomes.ReceiveAsync(&raw) {
		j.takeOutcome(ctx, raw.Payload().GetData())
		raw = converter.RawValue{}
	}
	for j.resolutions.ReceiveAsync(&raw) {
		j.takeResolution(ctx, raw.Payload().GetData())
		raw = converter.RawValue{}
	}
}

func (j *meteredJob) takeOutcome(ctx workflow.Context, data []byte) {
	j.stirred = true
	if !j.hasRow() {
		return
	}
	report, err := contract.ParseOutcome(data)
	if err != nil {
		j.tell(ctx, 0, "a report was refused: %s", told(err.Error()))
		j.recordEvent(ctx, activities.EventMessageRefused, 0, "outcome: "+err.Error())
		return
	}
	source := report.Source
	if source == "" {
		source = "an unnamed source"
	}
	// What the report is about where it names no attempt: the one in flight, or the one that the probe is asked about.
	current, subject := j.current(), 0
	if current != nil {
		subject = current.number
	} else if j.probe != probeNotDue {
		subject = j.inDoubt
	}
	number := report.Attempt
	if number == 0 {
		number = subject
	}
	concerns := subject != 0 && number == subject
	switch {
	case report.State == contract.OutcomeSucceeded && j.row.State != contract.StateSucceeded:
		output, note := boundOutput(report.Output, len(report.Output))
		number = min(number, j.row.Attempts+1)
		j.deliver(delivery{number, output, fmt.Sprintf("delivered, as %s reported%s", source, note)})
	case report.State == contract.OutcomeFailed && concerns:
		if current != nil {
			current.superseded = true
			current.stop()
		}
		j.endAttempt(ctx, number, endingFailed, fmt.Sprintf("failed, as %s reported: %s", source, report.Error))
	default:
		detail := fmt.Sprintf("%s reported %s", source, report.State)
		if report.Error != "" {
			detail += ": " + report.Error
		}
		j.tell(ctx, 0, "%s: it changes nothing", told(detail))
		j.recordEvent(ctx, activities.EventOutcomeRecorded, number, detail)
	}
}

func (j *meteredJob) takeResolution(ctx workflow.Context, data []byte) {
	j.stirred = true
	if !j.hasRow() {
		return
	}
	decision, err := contract.ParseResolution(data)
	request := activities.ResolveRequest{Resolution: decision, RecordRefusal: true}
	if err != nil {
		request.Invalid = err.Error()
		request.Resolution = recordable(decision, data)
	}
	// A refusal is kept among the resolutions, except where its id is taken there.
	if answer := j.resolve(ctx, request); answer.Why == activities.WhyIDReused {
		j.recordEvent(ctx, activities.EventMessageRefused, 0, "resolve: "+answer.Refusal)
	}
}

// recordable cuts a decision that breaks the contract down to what can be kept. One without a valid id is kept under an
// id made from what was sent.
func recordable(d contract.Resolution, data []byte) contract.Resolution {
	d.ID = recordableID(d.ID, data)
	d.Action = contract.Action(contract.Clip(string(d.Action), 200))
	d.Attempts = min(max(d.Attempts, 0), 1<<30)
	d.Operator = contract.Clip(d.Operator, contract.MaxReasonBytes)
	d.Reason = contract.Clip(d.Reason, contract.MaxReasonBytes)
	d.Evidence = contract.Clip(d.Evidence, contract.MaxReasonBytes)
	return d
}

// recordableID is the id of a decision, or one made from what was sent where that is none.
func recordableID(id string, data []byte) string {
	if contract.ValidID(id) {
		return id
	}
	sum := sha256.Sum256(data)
	return "refused-" + hex.EncodeToString(sum[:8])
}

// status answers the query of this name.
func (j *meteredJob) status() contract.JobStatus {
	status := contract.JobStatus{
		State: j.state(), Money: j.row.Money(), Attempt: j.row.Attempts, WaitsFor: j.waitsFor(),
		RefundID: j.moved.RefundID, Note: j.moved.Refusal,
	}
	if status.State == contract.StateSucceeded {
		status.Note = ""
	}
	if current := j.current(); current != nil {
		status.Attempt = current.number
	}
	status.Actions = status.State.Actions()
	return status
}

func (j *meteredJob) waitsFor() string {
	state := j.state()
	switch {
	case state == contract.StateCharging:
		return "the charge"
	case state == contract.StateDeadLetter:
		return "a person's decision: resolve with retry, deliver or write_off"
	case len(j.attempts) > 0 && (j.row.CancelRequested || !state.Open() && state != contract.StateSucceeded):
		return "the real end of the work, which was asked to stop"
	case !state.Open():
		return "nothing"
	case j.current() != nil && j.row.Refunded:
		return fmt.Sprintf("late success of attempt %d (the customer is refunded)", j.current().number)
	case j.current() != nil:
		return fmt.Sprintf("attempt %d, promised by %s", j.current().number, j.workMeta(0).PromiseDeadline)
	case j.probe != probeNotDue:
		return "the probe's answer"
	case j.pause == pauseRunning:
		return fmt.Sprintf("the pause before attempt %d", j.row.Attempts+1)
	default:
		return "its next step"
	}
}
