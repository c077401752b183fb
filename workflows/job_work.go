package workflows

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// attempt is a work activity in flight.
type attempt struct {
	number int
	result workflow.Future
	stop   workflow.CancelFunc
	// stopping is set once the work was asked to stop, superseded once its end no longer decides what comes next: a
	// delivery still counts.
	stopping   bool
	superseded bool
}

// delivery is a success that Postgres is to be told of.
type delivery struct {
	attempt int
	output  json.RawMessage
	reason  string
}

func (j *meteredJob) startAttempt(ctx workflow.Context) {
	number := j.row.Attempts + 1
	workCtx, stop := workflow.WithCancel(ctx)
	limit := j.job.Retry.MaxAttempts + j.row.Granted
	workCtx = workCall(workCtx, j.job, number, limit)
	j.tell(ctx, 0, "attempt %d of %d: %s on queue %s", number, limit,
		contract.Plain(j.job.Work.Activity), contract.Plain(j.job.Work.TaskQueue))
	j.attempts = append(j.attempts, &attempt{
		number: number,
		result: workflow.ExecuteActivity(workCtx, j.job.Work.Activity, j.job.Work.Input, j.workMeta(number)),
		stop:   stop,
	})
	j.pause, j.probe, j.inDoubt = pauseNotDue, probeNotDue, 0
}

// workMeta is what the work and the probe are told about the job.
func (j *meteredJob) workMeta(number int) contract.WorkMeta {
	return contract.WorkMeta{
		Tenant: j.job.Tenant, JobID: j.job.JobID, Attempt: number,
		PromiseDeadline: j.row.CreatedAt.Add(j.job.Promise.Std()).Format(time.RFC3339Nano),
		IdempotencyKey:  fmt.Sprintf("%s/%d", j.job.WorkflowID(), j.row.KeyAttempt),
	}
}

// current returns the attempt in flight that decides what comes next, or nil.
func (j *meteredJob) current() *attempt {
	for _, a := range j.attempts {
		if !a.superseded {
			return a
		}
	}
	return nil
}

// collectWork takes in every attempt that has ended.
func (j *meteredJob) collectWork(ctx workflow.Context) {
	flying := j.attempts[:0:0]
	for _, a := range j.attempts {
		if !a.result.IsReady() {
			flying = append(flying, a)
			continue
		}
		var raw converter.RawValue
		err := a.result.Get(ctx, &raw)
		failure, isFailure := errors.AsType[*temporal.ActivityError](err)
		switch {
		case err == nil:
			output, note := shapeOutput(raw.Payload())
			j.deliver(delivery{a.number, output, fmt.Sprintf("delivered by attempt %d%s", a.number, note)})
		case isFailure || temporal.IsCanceledError(err):
			if a.superseded {
				continue
			}
			cause := err
			if isFailure && failure.Unwrap() != nil {
				cause = failure.Unwrap()
			}
			how, text := classify(cause)
			j.endAttempt(ctx, a.number, how, text)
		default:
			// The activity completed; only its result cannot be read here.
			note := fmt.Sprintf("delivered by attempt %d; its result could not be decoded: %v", a.number, err)
			j.deliver(delivery{a.number, nil, note})
		}
	}
	j.attempts = flying
}

// deliver keeps the first delivery to be settled; any further one of the same job would change nothing.
func (j *meteredJob) deliver(d delivery) {
	if j.delivery == nil {
		j.delivery = &d
	}
}

// endAttempt notes how an attempt ended, to be recorded. After an unknown end the probe is asked before anything runs
// again.
func (j *meteredJob) endAttempt(ctx workflow.Context, number int, how ending, text string) {
	j.ended, j.endedAttempt, j.endedError = how, number, contract.Clip(text, contract.MaxReasonBytes)
	j.tell(ctx, 0, "attempt %d %s: %s", number, how.inWords(), told(text))
	j.pause, j.inDoubt, j.probe = pauseDue, 0, probeNotDue
	if how == endingUnknown {
		j.inDoubt = number
		if j.job.Work.Probe != "" {
			j.probe = probeDue
		}
	}
}

// classify reads how an attempt ended from its error. Only what the work itself said, or what proves that it never
// began, is a failure; whatever happened between the work and us is unknown.
func classify(err error) (ending, string) {
	switch failure := temporal.GetDefaultFailureConverter().ErrorToFailure(err); {
	case failure.GetResetWorkflowFailureInfo() != nil:
		return endingUnknown, "the run was reset while the work was in flight"
	case failure.GetFailureInfo() == nil:
		return endingUnknown, "no answer of the work's own: " + err.Error()
	}
	// Only the outermost error counts: its causes are what the work met inside.
	switch cause := err.(type) {
	case *temporal.TimeoutError:
		if cause.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START {
			return endingFailed, "no worker took the work in time"
		}
		return endingUnknown, "no answer: " + err.Error()
	case *temporal.ApplicationError:
		if cause.Type() == "payloadSizeError" || strings.HasPrefix(cause.Message(), "[TMPRL1103]") {
			return endingUnknown, "the work's result is over the size that its worker may send: " + cause.Message()
		}
		text := cause.Message()
		if cause.Type() != "" {
			text = cause.Type() + ": " + text
		}
		if cause.NonRetryable() {
			return endingFatal, text
		}
		return endingFailed, text
	case *temporal.CanceledError:
		return endingFailed, "the work stopped when it was asked to"
	case *temporal.PanicError:
		return endingFailed, "the work panicked: " + cause.Error()
	default:
		return endingUnknown, "no answer of the work's own: " + err.Error()
	}
}

// shapeOutput turns a work result into the JSON that is kept. The note says in words where it is not the result itself.
func shapeOutput(payload *commonpb.Payload) (json.RawMessage, string) {
	data, encoding := payload.GetData(), string(payload.GetMetadata()[converter.MetadataEncoding])
	if payload == nil || encoding == converter.MetadataEncodingNil {
		return nil, ""
	}
	// A result is nested in others on its way, so that the deepest JSON that can be read alone would not be read again.
	nested := slices.Concat([]byte("[["), data, []byte("]]"))
	if strings.HasPrefix(encoding, "json/") && utf8.Valid(data) && json.Valid(nested) {
		return boundOutput(data, len(data))
	}
	wrapped := `{"encoding":` + quote(encoding) + `,"base64":"` + base64.StdEncoding.EncodeToString(data) + `"}`
	return boundOutput([]byte(wrapped), len(data))
}

// boundOutput leaves out an output that is too large to keep; size is the result's own.
func boundOutput(output json.RawMessage, size int) (json.RawMessage, string) {
	if len(output) <= contract.MaxOutputBytes {
		return output, ""
	}
	return json.RawMessage(fmt.Sprintf(`{"omitted":true,"bytes":%d}`, size)), fmt.Sprintf(
		"; its result of %d bytes is over the %d that are kept: return a reference to it instead",
		size, contract.MaxOutputBytes)
}

func quote(text string) string {
	quoted, err := jsontext.AppendQuote(nil, strings.ToValidUTF8(text, "\uFFFD"))
	if err != nil {
		panic(err)
	}
	return string(quoted)
}

func (j *meteredJob) startProbe(ctx workflow.Context) {
	j.probe = probeAsking
	j.probeResult = workflow.ExecuteActivity(probeCall(ctx, j.job), j.job.Work.Probe, j.workMeta(j.inDoubt))
}

// collectProbe takes in the probe's answer, if there is one.
func (j *meteredJob) collectProbe(ctx workflow.Context) {
	if j.probe == probePausing && j.probeTimer.IsReady() {
		j.probe = probeDue
	}
	if j.probe != probeAsking || !j.probeResult.IsReady() {
		return
	}
	var raw converter.RawValue
	var answer contract.ProbeAnswer
	asked := j.inDoubt
	err := j.probeResult.Get(ctx, &raw)
	if err == nil {
		err = json.Unmarshal(bytes.ToValidUTF8(raw.Payload().GetData(), []byte("\uFFFD")), &answer)
	}
	j.probe, j.attention = probeNotDue, ""
	detail := string(answer.State)
	switch {
	case err != nil:
		detail = "the probe could not answer, so the outcome stays unknown: " + err.Error()
		j.attention = contract.AttentionEvidenceConflict
	case answer.State == contract.ProbeSucceeded:
		output, note := boundOutput(answer.Output, len(answer.Output))
		j.deliver(delivery{asked, output, fmt.Sprintf("delivered by attempt %d, as its probe found%s", asked, note)})
	case answer.State == contract.ProbeFailed:
		j.endAttempt(ctx, asked, endingFailed, "the probe found that it failed")
	case answer.State == contract.ProbeRunning:
		j.probeAsked++
		j.probe = probePausing
		pause := j.job.Retry.Backoff(j.probeAsked)
		j.probeTimer = workflow.NewTimerWithOptions(ctx, pause, workflow.TimerOptions{Summary: "ask the probe again"})
		if j.probeAsked > 1 {
			return
		}
	case answer.State != contract.ProbeUnknown:
		detail = fmt.Sprintf("the probe answered %q, which is none of succeeded, failed, running, unknown", answer.State)
		j.attention = contract.AttentionEvidenceConflict
	}
	if answer.State != contract.ProbeRunning {
		j.probeAsked = 0
	}
	j.tell(ctx, 0, "the probe was asked about attempt %d: %s", asked, told(detail))
	j.recordEvent(ctx, activities.EventProbeAnswered, asked, detail)
}
