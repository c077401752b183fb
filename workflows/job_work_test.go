package workflows

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

func TestHowAnAttemptEndedIsReadFromItsError(t *testing.T) {
	caused := func(failure, cause *failurepb.Failure) *failurepb.Failure {
		failure.Cause = cause
		return failure
	}
	delayed := applicationFailure("busy", "Busy", false)
	delayed.GetApplicationFailureInfo().NextRetryDelay = durationpb.New(time.Hour)
	for _, c := range []struct {
		name    string
		failure *failurepb.Failure
		want    ending
		text    string
	}{
		{"application error", applicationFailure("out of memory", "RenderError", false), endingFailed, "RenderError: out of memory"},
		{"application error without a type", applicationFailure("oops", "", false), endingFailed, "oops"},
		{"application error with a delay", delayed, endingFailed, "Busy: busy"},
		{"non-retryable application error", applicationFailure("no scene", "BadScene", true), endingFatal, "BadScene: no scene"},
		{"StartToClose timeout", timeoutFailure(enumspb.TIMEOUT_TYPE_START_TO_CLOSE), endingUnknown, "no answer: "},
		{"heartbeat timeout, a lost worker", timeoutFailure(enumspb.TIMEOUT_TYPE_HEARTBEAT), endingUnknown, "no answer: "},
		{"ScheduleToClose timeout", timeoutFailure(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE), endingUnknown, "no answer: "},
		{"ScheduleToStart timeout, which never ran", timeoutFailure(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START),
			endingFailed, "no worker took the work in time"},
		{"canceled", canceledFailure(), endingFailed, "the work stopped when it was asked to"},
		{"server error", &failurepb.Failure{Message: "internal", FailureInfo: &failurepb.Failure_ServerFailureInfo{
			ServerFailureInfo: &failurepb.ServerFailureInfo{NonRetryable: true}}}, endingUnknown, "no answer of the work's own: internal"},
		{"terminated", &failurepb.Failure{Message: "terminated", FailureInfo: &failurepb.Failure_TerminatedFailureInfo{
			TerminatedFailureInfo: &failurepb.TerminatedFailureInfo{}}}, endingUnknown, "no answer of the work's own: "},
		{"no information", &failurepb.Failure{Message: "?"}, endingUnknown, "no answer of the work's own: ?"},
		{"the run was reset", &failurepb.Failure{Message: "reset", FailureInfo: &failurepb.Failure_ResetWorkflowFailureInfo{
			ResetWorkflowFailureInfo: &failurepb.ResetWorkflowFailureInfo{}}}, endingUnknown,
			"the run was reset while the work was in flight"},
		{"panic", applicationFailure("index out of range", "PanicError", false), endingFailed,
			"the work panicked: index out of range"},
		{"result over the worker's limit", applicationFailure("[TMPRL1103] Attempted to upload payloads", "", false),
			endingUnknown, "the work's result is over the size that its worker may send: "},
		{"result over the worker's limit, by type", applicationFailure("too large", "payloadSizeError", true), endingUnknown,
			"the work's result is over the size that its worker may send: too large"},
		{"application error that met a timeout inside", caused(applicationFailure("upstream is slow", "Upstream", false),
			timeoutFailure(enumspb.TIMEOUT_TYPE_START_TO_CLOSE)), endingFailed, "Upstream: upstream is slow"},
		{"non-retryable application error that met a cancel inside", caused(applicationFailure("x", "BadScene", true),
			canceledFailure()), endingFatal, "BadScene: x"},
		{"timeout whose last cause is an application error", caused(timeoutFailure(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE),
			applicationFailure("last try", "RenderError", true)), endingUnknown, "no answer: "},
		{"server error with a cause", caused(&failurepb.Failure{Message: "internal",
			FailureInfo: &failurepb.Failure_ServerFailureInfo{ServerFailureInfo: &failurepb.ServerFailureInfo{}}},
			applicationFailure("x", "y", true)), endingUnknown, "no answer of the work's own: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			received, ok := errors.AsType[*temporal.ActivityError](activityError(c.failure))
			require.True(t, ok)
			how, text := classify(received.Unwrap())
			assert.Equal(t, c.want, how)
			assert.Contains(t, text, c.text)
		})
	}
}

func TestAResultThatCannotBeDecodedIsADeliveryAllTheSame(t *testing.T) {
	s := newStage(t, delivers(time.Second, 1))
	s.env.SetDataConverter(undecodable{converter.GetDefaultDataConverter()})
	s.run()
	assert.Equal(t, contract.StateSucceeded, s.result.State)
	assert.Equal(t, "charge", s.entries())
	assert.Equal(t, "null", string(s.result.Output))
	assert.Contains(t, s.result.Reason, "delivered by attempt 1; its result could not be decoded: the key is gone")
}

// undecodable is a converter that cannot read the number 1, as where a codec's key is missing.
type undecodable struct{ converter.DataConverter }

func (u undecodable) FromPayloads(payloads *commonpb.Payloads, into ...any) error {
	if len(payloads.GetPayloads()) == 1 && string(payloads.GetPayloads()[0].GetData()) == "1" {
		return errors.New("the key is gone")
	}
	return u.DataConverter.FromPayloads(payloads, into...)
}

func TestWorkOfAnOrdinaryWorkerRunsWithInputAndIdentity(t *testing.T) {
	s := newStage(t).spec(func(j *contract.Job) { j.Work.Activity = "Echo" })
	s.realWork = true
	s.env.RegisterActivityWithOptions(func(ctx context.Context, input map[string]int, meta contract.WorkMeta) (any, error) {
		return map[string]any{"scene": input["scene"], "meta": meta, "attempt": activity.GetInfo(ctx).Attempt}, nil
	}, activity.RegisterOptions{Name: "Echo"})
	s.run()
	assert.JSONEq(t, `{"scene":7,"attempt":1,"meta":{"tenant":"acme","jobId":"j1","attempt":1,
		"promiseDeadline":"2026-03-01T12:00:30Z","idempotencyKey":"job/acme/j1/1"}}`, string(s.result.Output))
}

func TestAbsentWorkInputIsNull(t *testing.T) {
	s := newStage(t, delivers(0, 1)).spec(func(j *contract.Job) { j.Work.Input = nil }).run()
	assert.Equal(t, "null", string(s.plays[0].input))
}

func TestWorkThatPanicsFailsItsAttempt(t *testing.T) {
	s := newStage(t).spec(func(j *contract.Job) {
		j.Work.Activity, j.Retry.MaxAttempts = "Panic", 1
	})
	s.realWork = true
	s.env.RegisterActivityWithOptions(func(context.Context, any, contract.WorkMeta) error { panic("index out of range") },
		activity.RegisterOptions{Name: "Panic"})
	s.at(time.Minute, func() { s.signal(contract.ResolveMessage, decision("r1", contract.ActionWriteOff)) })
	s.run()
	assert.Equal(t, []string{"the work panicked: index out of range"}, s.told("attempt_failed"))
}
