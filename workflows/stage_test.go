package workflows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// fake is what the fakes of activities have in common. fault, where set, is asked before each call and may make it fail, or
// lose the reply after it had its effect.
type fake struct {
	mu    sync.Mutex
	calls []string
	fault func(call string, nth int) (fail, loseReply error)
	// during is run while the call is under way.
	during map[string]func()
}

// fakeJobs has the activities of activities.Jobs on a book.
type fakeJobs struct {
	fake
	book  *book
	asked struct {
		settled  []activities.SettleRequest
		resolved []activities.ResolveRequest
	}
	// sources lists through which order each call of a job was to move its refund.
	sources map[string][]activities.SourceOrder
}

func newFake() fake { return fake{during: map[string]func(){}} }

func (f *fake) count(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, made := range f.calls {
		if made == call {
			n++
		}
	}
	return n
}

func guard[A any](f *fake, call string, run func() A) (A, error) {
	f.mu.Lock()
	f.calls = append(f.calls, call)
	f.mu.Unlock()
	var zero A
	var fail, lose error
	if f.fault != nil {
		fail, lose = f.fault(call, f.count(call))
	}
	if fail != nil {
		return zero, fail
	}
	answer := run()
	if during := f.during[call]; during != nil {
		during()
	}
	if lose != nil {
		return zero, lose
	}
	return answer, nil
}

// moved is a guard's answer after the refund that it made has left through the order, or was called back.
func (f *fakeJobs) moved(
	call string, key activities.JobKey, source activities.SourceOrder, answer activities.JobAnswer,
) activities.JobAnswer {
	f.sources[call] = append(f.sources[call], source)
	answer.Source = f.book.moveSource(key, source)
	return answer
}

func (f *fakeJobs) ChargeJob(_ context.Context, r activities.ChargeRequest) (activities.ChargeAnswer, error) {
	return guard(&f.fake, "ChargeJob", func() activities.ChargeAnswer {
		f.sources["ChargeJob"] = append(f.sources["ChargeJob"], r.Source)
		return f.book.charge(r)
	})
}

func (f *fakeJobs) RefundJob(_ context.Context, r activities.RefundRequest) (activities.JobAnswer, error) {
	return guard(&f.fake, "RefundJob", func() activities.JobAnswer {
		return f.moved("RefundJob", r.JobKey, r.Source, f.book.refund(r))
	})
}

func (f *fakeJobs) SettleJob(_ context.Context, r activities.SettleRequest) (activities.JobAnswer, error) {
	return guard(&f.fake, "SettleJob", func() activities.JobAnswer {
		f.asked.settled = append(f.asked.settled, r)
		return f.moved("SettleJob", r.JobKey, r.Source, f.book.settle(r))
	})
}

func (f *fakeJobs) RecordAttempt(_ context.Context, r activities.RecordRequest) (activities.JobAnswer, error) {
	return guard(&f.fake, "RecordAttempt", func() activities.JobAnswer { return f.book.record(r) })
}

func (f *fakeJobs) ParkJob(_ context.Context, r activities.ParkRequest) (activities.JobAnswer, error) {
	return guard(&f.fake, "ParkJob", func() activities.JobAnswer { return f.book.park(r) })
}

func (f *fakeJobs) CloseJob(_ context.Context, r activities.CloseRequest) (activities.JobAnswer, error) {
	return guard(&f.fake, "CloseJob", func() activities.JobAnswer {
		return f.moved("CloseJob", r.JobKey, r.Source, f.book.close(r))
	})
}

func (f *fakeJobs) ResolveJob(_ context.Context, r activities.ResolveRequest) (activities.ResolveAnswer, error) {
	return guard(&f.fake, "ResolveJob", func() activities.ResolveAnswer {
		f.asked.resolved = append(f.asked.resolved, r)
		answer := f.book.resolve(r)
		answer.JobAnswer = f.moved("ResolveJob", r.JobKey, r.Source, answer.JobAnswer)
		return answer
	})
}

func (f *fakeJobs) RecordJobEvent(_ context.Context, r activities.EventRequest) (activities.Verdict, error) {
	return guard(&f.fake, "RecordJobEvent", func() activities.Verdict { return f.book.event(r) })
}

func (f *fakeJobs) ReadJobOutput(_ context.Context, key activities.JobKey) (activities.StoredOutput, error) {
	return guard(&f.fake, "ReadJobOutput", func() activities.StoredOutput {
		job := f.book.jobs[key]
		stored := activities.StoredOutput{Reason: job.reason}
		if job.output != nil {
			stored.Output = json.RawMessage(*job.output)
		}
		return stored
	})
}

func (f *fakeJobs) ReadJobSpec(_ context.Context, key activities.JobKey) (string, error) {
	return guard(&f.fake, "ReadJobSpec", func() string { return f.book.jobs[key].spec })
}

// act is how a work or probe activity goes: after a while it answers, or fails, or (never) does not end.
type act struct {
	after time.Duration
	value any
	err   *failurepb.Failure
	never bool
	// stopped is what becomes of it once it is asked to stop; nil: it stops at once.
	stopped *act
}

func delivers(after time.Duration, value any) act { return act{after: after, value: value} }

func goesWrong(after time.Duration, failure *failurepb.Failure) act {
	return act{after: after, err: failure}
}

func fails(after time.Duration, message string) act {
	return goesWrong(after, applicationFailure(message, "RenderError", false))
}

func failsForGood(after time.Duration, message string) act {
	return goesWrong(after, applicationFailure(message, "BadScene", true))
}

func isLost(after time.Duration) act {
	return goesWrong(after, timeoutFailure(enumspb.TIMEOUT_TYPE_START_TO_CLOSE))
}

// butWhenStopped makes the act go on as the other one once it is asked to stop.
func (a act) butWhenStopped(other act) act {
	a.stopped = &other
	return a
}

func hangs() act { return act{never: true} }

func answers(after time.Duration, state contract.ProbeState, output string) act {
	answer := contract.ProbeAnswer{State: state}
	if output != "" {
		answer.Output = json.RawMessage(output)
	}
	return act{after: after, value: answer}
}

func applicationFailure(message, kind string, final bool) *failurepb.Failure {
	return &failurepb.Failure{Message: message, FailureInfo: &failurepb.Failure_ApplicationFailureInfo{
		ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Type: kind, NonRetryable: final}}}
}

func timeoutFailure(kind enumspb.TimeoutType) *failurepb.Failure {
	return &failurepb.Failure{Message: "activity " + kind.String() + " timeout",
		FailureInfo: &failurepb.Failure_TimeoutFailureInfo{
			TimeoutFailureInfo: &failurepb.TimeoutFailureInfo{TimeoutType: kind}}}
}

func canceledFailure() *failurepb.Failure {
	return &failurepb.Failure{Message: "canceled", FailureInfo: &failurepb.Failure_CanceledFailureInfo{
		CanceledFailureInfo: &failurepb.CanceledFailureInfo{}}}
}

// activityError is the failure as a workflow receives it from the server.
func activityError(cause *failurepb.Failure) error {
	return temporal.GetDefaultFailureConverter().FailureToError(&failurepb.Failure{
		Message: "activity error", Cause: cause, FailureInfo: &failurepb.Failure_ActivityFailureInfo{
			ActivityFailureInfo: &failurepb.ActivityFailureInfo{
				ActivityId: "1", ActivityType: &commonpb.ActivityType{Name: "RenderVideo"}}}})
}

// played is an activity that the job started.
type played struct {
	name     string
	input    json.RawMessage
	meta     contract.WorkMeta
	options  workflow.ActivityOptions
	began    time.Duration
	inFlight bool
	stopped  bool
	settable workflow.Settable
}

// scene is a workflow in virtual time, with what happens around it.
type scene struct {
	t     player
	env   *testsuite.TestWorkflowEnvironment
	start time.Time
	shown []map[string]string
	err   error
}

// stage is one run of the workflow with everything around it: virtual time, a book for Postgres, work and probe from a
// script. Every scene is set before run.
type stage struct {
	*scene
	jobs  *fakeJobs
	book  *book
	job   contract.Job
	id    string
	input []byte
	work  []act
	probe []act
	// improvise plays on where a script has ended; without it, that is an error of the test or of the workflow.
	improvise func(name string) act
	// realWork leaves the work to an activity that the test registers.
	realWork bool

	plays  []*played
	timers map[string]time.Duration
	// onTimer happens together with the firing of a timer of that length, in the same workflow task.
	onTimer map[time.Duration]func()
	result  contract.JobResult
}

const cost = 40

var refusalsOfNothing = log.NewStructuredLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))

// player is a test, or one of rapid's many.
type player interface {
	require.TestingT
	Helper()
}

func newScene(t player) *scene {
	s := &scene{t: t, start: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(refusalsOfNothing)
	s.env = suite.NewTestWorkflowEnvironment()
	s.env.SetStartTime(s.start)
	s.env.SetTestTimeout(5 * time.Minute)
	Register(s.env)
	return s
}

// intercepted are the worker's options. A busy machine may well keep a workflow from the processor for a second, which the
// SDK would take for a deadlock.
func intercepted(by interceptor.WorkerInterceptor) worker.Options {
	return worker.Options{Interceptors: []interceptor.WorkerInterceptor{by}, DeadlockDetectionTimeout: time.Minute}
}

// newStage sets a job of cost 40 on an account of 100, with a promise of 30 s and attempts of at most 10 min.
func newStage(t player, work ...act) *stage {
	t.Helper()
	s := &stage{
		scene: newScene(t), work: work,
		timers: map[string]time.Duration{}, onTimer: map[time.Duration]func(){},
		job: contract.Job{
			Tenant: "acme", JobID: "j1", Account: "team", Cost: cost, Promise: contract.Duration(30 * time.Second),
			Work: contract.Work{
				Activity: "RenderVideo", TaskQueue: "gpu", Input: json.RawMessage(`{"scene":7}`),
				Timeout: contract.Duration(10 * time.Minute),
			},
		},
		id: "job/acme/j1",
	}
	s.env.SetWorkerOptions(intercepted(&prompter{stage: s}))
	s.env.SetOnTimerScheduledListener(func(id string, after time.Duration) { s.timers[id] = after })
	s.env.SetOnTimerFiredListener(func(id string) {
		if together := s.onTimer[s.timers[id]]; together != nil {
			together()
		}
	})
	s.book = newBook(s.env.Now)
	s.book.balances["team"] = 100
	s.jobs = &fakeJobs{fake: newFake(), book: s.book, sources: map[string][]activities.SourceOrder{}}
	s.env.RegisterActivity(s.jobs)
	return s
}

// spec changes the job before it is submitted.
func (s *stage) spec(change func(*contract.Job)) *stage {
	change(&s.job)
	return s
}

func (s *stage) withProbe(script ...act) *stage {
	s.job.Work.Probe, s.probe = "FindVideo", script
	return s
}

func (s *stage) key() activities.JobKey {
	return activities.JobKey{Tenant: s.job.Tenant, JobID: s.job.JobID}
}

// row is the job as it stands in the book.
func (s *stage) row() *bookedJob { return s.book.jobs[s.key()] }

// raw is the job's input as it is submitted.
func (s *stage) raw() []byte {
	raw, _, err := s.job.Encode()
	require.NoError(s.t, err)
	return raw
}

// charged puts the job into the book as an earlier run charged it, that long ago.
func (s *stage) charged(ago time.Duration) *bookedJob {
	parsed, err := contract.ParseJob(s.raw())
	require.NoError(s.t, err)
	fingerprint, err := parsed.Fingerprint()
	require.NoError(s.t, err)
	now := s.book.now
	s.book.now = func() time.Time { return s.start.Add(-ago) }
	s.book.charge(activities.ChargeRequest{
		JobKey: s.key(), Account: s.job.Account, Cost: s.job.Cost, Fingerprint: fingerprint, Spec: string(s.raw()),
	})
	s.book.now = now
	return s.row()
}

// at plans something for the moment that long after the start.
func (s *scene) at(after time.Duration, happens func()) {
	s.env.RegisterDelayedCallback(happens, after)
}

func (s *scene) signal(name string, payload any) { s.env.SignalWorkflow(name, payload) }

// reply is the answer to an update.
type reply struct {
	accepted, done bool
	value          any
	err            error
}

func (s *scene) update(id, name string, payload any) *reply {
	r := &reply{}
	s.env.UpdateWorkflow(name, id, &testsuite.TestUpdateCallback{
		OnAccept:   func() { r.accepted = true },
		OnReject:   func(err error) { r.err = err },
		OnComplete: func(value any, err error) { r.done, r.value, r.err = true, value, err },
	}, payload)
	return r
}

// refusedAs says with which error type of the contract an answer was refused.
func refusedAs(err error) contract.Code {
	if failure, ok := errors.AsType[*temporal.ApplicationError](err); ok && failure.NonRetryable() {
		return contract.Code(failure.Type())
	}
	return ""
}

func (s *stage) status() contract.JobStatus {
	s.t.Helper()
	var status contract.JobStatus
	answer, err := s.env.QueryWorkflow(contract.StatusQuery)
	require.NoError(s.t, err)
	require.NoError(s.t, answer.Get(&status))
	return status
}

// run plays the job to its end. Whatever happened, the money must be right and nothing may be left behind.
func (s *stage) run() *stage {
	s.t.Helper()
	if s.input == nil {
		s.input = s.raw()
	}
	s.env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: s.id, TaskQueue: contract.TaskQueue})
	s.env.ExecuteWorkflow(contract.MeteredJobWorkflow, json.RawMessage(s.input))
	require.True(s.t, s.env.IsWorkflowCompleted())
	if s.err = s.env.GetWorkflowError(); s.err == nil {
		require.NoError(s.t, s.env.GetWorkflowResult(&s.result))
		s.checkResult()
	}
	return s
}

// checkResult holds the result against the book.
func (s *stage) checkResult() {
	s.t.Helper()
	require.Empty(s.t, s.book.broken(s.key()))
	row := s.row()
	if row == nil {
		assert.Equal(s.t, contract.StateDeclined, s.result.State)
		assert.Zero(s.t, s.result.Money)
		assert.Zero(s.t, s.shownLedger())
		return
	}
	assert.Equal(s.t, row.state, s.result.State)
	assert.False(s.t, row.state.Open(), "a closed run has a closed job")
	assert.Equal(s.t, row.attempts, s.result.Attempts)
	assert.Equal(s.t, row.reclaimed, s.result.Late)
	moved := map[string]int64{}
	for _, entry := range row.entries {
		moved[entry.kind] += entry.amount
	}
	assert.Equal(s.t, contract.Money{
		Charged: -moved["charge"], Refunded: moved["refund"], Reclaimed: -moved["reclaim"],
	}, s.result.Money)
	assert.Equal(s.t, -(moved["charge"] + moved["refund"] + moved["reclaim"]), s.result.Net)
	assert.Equal(s.t, -s.result.Net, s.shownLedger(), "the page's ledger column:\n%s", s.page())
	for _, play := range s.plays {
		if row.state != contract.StateSucceeded && play.name == s.job.Work.Activity {
			assert.False(s.t, play.inFlight, "%s is still in flight and may deliver unseen", play.name)
		}
	}
}

// elapsed is the virtual time since the start.
func (s *scene) elapsed() time.Duration { return s.env.Now().Sub(s.start) }

// metas lists what each play of the activity was told.
func (s *stage) metas(name string) (metas []contract.WorkMeta) {
	for _, play := range s.plays {
		if play.name == name {
			metas = append(metas, play.meta)
		}
	}
	return metas
}

// entries lists the kinds of the job's ledger entries.
func (s *stage) entries() string {
	kinds := []string{}
	for _, entry := range s.row().entries {
		kinds = append(kinds, entry.kind)
	}
	return strings.Join(kinds, " ")
}

// events lists the job's story, "kind attempt", one a line.
func (s *stage) events() []string {
	lines := []string{}
	for _, event := range s.row().events {
		lines = append(lines, fmt.Sprintf("%s %d", event.kind, event.attempt))
	}
	return lines
}

// told returns the details of the job's events of a kind.
func (s *stage) told(kind string) []string {
	details := []string{}
	for _, event := range s.row().events {
		if event.kind == kind {
			details = append(details, event.detail)
		}
	}
	return details
}

// last is the value that a search attribute had in the end, "" for none.
func (s *scene) last(attribute string) (value string) {
	for _, change := range s.shown {
		if v, changed := change[attribute]; changed {
			value = v
		}
	}
	return value
}

// history lists the values that a search attribute took.
func (s *scene) history(attribute string) (values []string) {
	for _, change := range s.shown {
		if v, changed := change[attribute]; changed {
			values = append(values, v)
		}
	}
	return values
}

// note keeps which search attributes were changed together, with their values, empty where unset.
func (s *scene) note(updates []temporal.SearchAttributeUpdate) {
	const same = "unchanged"
	keys := []temporal.SearchAttributeKeyKeyword{tenantKey, accountKey, moneyKey, refundKey, orderKey, attentionKey}
	var before []temporal.SearchAttributeUpdate
	for _, key := range keys {
		before = append(before, key.ValueSet(same))
	}
	after, change := temporal.NewSearchAttributes(append(before, updates...)...), map[string]string{}
	for _, key := range keys {
		if value, _ := after.GetKeyword(key); value != same {
			change[key.GetName()] = value
		}
	}
	s.shown = append(s.shown, change)
}

// prompter puts the script's acts in the place of the work and probe activities. The test environment would answer a
// cancel at once, where the server waits for the activity's real end.
type prompter struct {
	interceptor.WorkerInterceptorBase
	stage *stage
}

func (p *prompter) InterceptWorkflow(
	_ workflow.Context, next interceptor.WorkflowInboundInterceptor,
) interceptor.WorkflowInboundInterceptor {
	in := &prompterIn{stage: p.stage}
	in.Next = next
	return in
}

type prompterIn struct {
	interceptor.WorkflowInboundInterceptorBase
	stage *stage
}

func (p *prompterIn) Init(outbound interceptor.WorkflowOutboundInterceptor) error {
	out := &prompterOut{stage: p.stage}
	out.Next = outbound
	return p.Next.Init(out)
}

type prompterOut struct {
	interceptor.WorkflowOutboundInterceptorBase
	stage *stage
}

func (p *prompterOut) UpsertTypedSearchAttributes(ctx workflow.Context, updates ...temporal.SearchAttributeUpdate) error {
	p.stage.note(updates)
	return p.Next.UpsertTypedSearchAttributes(ctx, updates...)
}

func (p *prompterOut) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	s := p.stage
	play := &played{name: name, options: workflow.GetActivityOptions(ctx), began: s.elapsed(), inFlight: true}
	script := &s.work
	switch {
	case name == s.job.Work.Activity && !s.realWork:
		play.input, play.meta = args[0].(json.RawMessage), args[1].(contract.WorkMeta)
	case name == s.job.Work.Probe:
		script, play.meta = &s.probe, args[0].(contract.WorkMeta)
	default:
		return p.Next.ExecuteActivity(ctx, name, args...)
	}
	s.plays = append(s.plays, play)
	future, settable := workflow.NewFuture(ctx)
	play.settable = settable
	if len(*script) == 0 && s.improvise != nil {
		*script = []act{s.improvise(name)}
	}
	if len(*script) == 0 {
		s.t.Errorf("%s is started once more than the script knows", name)
		settable.SetError(activityError(applicationFailure("no such act", "", true)))
		return future
	}
	next := (*script)[0]
	*script = (*script)[1:]
	asked := ctx
	own, _ := workflow.NewDisconnectedContext(ctx)
	workflow.Go(own, func(own workflow.Context) {
		if s.goesToItsEnd(own, asked, next) {
			play.end(next)
			return
		}
		play.stopped = true
		then := act{err: canceledFailure()}
		if next.stopped != nil {
			then = *next.stopped
		}
		s.goesToItsEnd(own, own, then)
		play.end(then)
	})
	return future
}

// goesToItsEnd reports whether the act ended before asked was canceled.
func (s *stage) goesToItsEnd(own, asked workflow.Context, a act) bool {
	if a.after == 0 && !a.never {
		return true
	}
	over := func() bool { return asked.Err() != nil }
	if !a.never {
		timer := workflow.NewTimer(own, a.after)
		over = func() bool { return timer.IsReady() || asked.Err() != nil }
	}
	if err := workflow.Await(own, over); err != nil {
		return false
	}
	return asked.Err() == nil
}

// end makes the activity's answer known, unless it has ended before.
func (p *played) end(a act) {
	if !p.inFlight {
		return
	}
	p.inFlight = false
	if a.err != nil {
		p.settable.SetError(activityError(a.err))
		return
	}
	if payload, ready := a.value.(*commonpb.Payload); ready {
		p.settable.SetValue(&commonpb.Payloads{Payloads: []*commonpb.Payload{payload}})
		return
	}
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(a.value)
	if err != nil {
		panic(err)
	}
	p.settable.SetValue(payloads)
}
