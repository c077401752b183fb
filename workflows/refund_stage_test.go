package workflows

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// The fake has the shapes of what it stands for.
var _ = []interface {
	ReadRefund(context.Context, contract.RefundKey) (activities.RefundRow, error)
	FollowRefund(context.Context, activities.FollowRequest) (activities.FollowAnswer, error)
	ApplyNotice(context.Context, activities.NoticeRequest) (activities.AppliedNotice, error)
	LookUpRefund(context.Context, contract.RefundKey) error
	ResolveRefund(context.Context, activities.ResolveRefundRequest) (activities.ResolveRefundAnswer, error)
}{(*activities.Refunds)(nil), (*fakeRefunds)(nil)}

// says is what the channel answers to a call, after that long.
type says struct {
	outcome channel.Outcome
	after   time.Duration
	code    string
}

var (
	noAnswer  = says{outcome: channel.OutcomeUnknown, code: "timeout"}
	notFound  = says{outcome: channel.OutcomeNotFound}
	pending   = says{outcome: channel.OutcomePending}
	confirmed = says{outcome: channel.OutcomeSucceeded}
	refused   = says{outcome: channel.OutcomeFailed, code: "card_expired"}
)

func (a says) takes(after time.Duration) says {
	a.after = after
	return a
}

// fakeRefunds has the activities of activities.Refunds on a refundBook and a channel that answers from a script, whose last
// answer goes for all further calls.
type fakeRefunds struct {
	fake
	book           *refundBook
	submits, looks []says
	resolved       []activities.ResolveRefundRequest
	// claims is set where signalled notices say what nothing else does.
	claims bool
}

func (f *fakeRefunds) ReadRefund(_ context.Context, _ contract.RefundKey) (activities.RefundRow, error) {
	return guardWith(f, "ReadRefund", f.book.read)
}

// ApplyNotice plays the door too, which commits what a channel reports before the run is told. What is only claimed came by no
// door.
func (f *fakeRefunds) ApplyNotice(_ context.Context, q activities.NoticeRequest) (heard activities.AppliedNotice, err error) {
	heard.RefundRow, err = guardWith(f, "ApplyNotice", func() (activities.RefundRow, error) {
		if heard.News = f.claims; !f.claims {
			f.book.apply(channel.Outcome(q.Notice.Outcome), q.Notice.Code, q.Notice.ChannelRef)
		}
		return f.book.read()
	})
	return heard, err
}

func (f *fakeRefunds) LookUpRefund(_ context.Context, _ contract.RefundKey) error {
	_, err := guardWith(f, "LookUpRefund", func() (activities.RefundRow, error) {
		f.asks("look", func(time.Duration) {})
		return f.book.read()
	})
	return err
}

func (f *fakeRefunds) ResolveRefund(
	_ context.Context, q activities.ResolveRefundRequest,
) (activities.ResolveRefundAnswer, error) {
	return guard(&f.fake, "ResolveRefund", func() activities.ResolveRefundAnswer {
		f.resolved = append(f.resolved, q)
		return f.book.resolve(q)
	})
}

func guardWith[A any](f *fakeRefunds, call string, run func() (A, error)) (A, error) {
	var err error
	answer, fault := guard(&f.fake, call, func() (answer A) {
		answer, err = run()
		return answer
	})
	if fault != nil {
		err = fault
	}
	return answer, err
}

func (f *fakeRefunds) FollowRefund(_ context.Context, q activities.FollowRequest) (activities.FollowAnswer, error) {
	return f.attempt(q, func(time.Duration) {})
}

// attempt is one attempt of FollowRefund. takes lets the time pass that the channel takes.
func (f *fakeRefunds) attempt(q activities.FollowRequest, takes func(time.Duration)) (activities.FollowAnswer, error) {
	return guardWith(f, "FollowRefund", func() (activities.FollowAnswer, error) {
		if call := f.book.begin(); call != "" {
			answer := f.asks(call, takes)
			if answer.outcome == channel.OutcomeNotFound && f.book.again() {
				f.asks("submit", takes)
			}
		}
		return f.book.answer(q)
	})
}

func (f *fakeRefunds) asks(call string, takes func(time.Duration)) says {
	script := &f.looks
	if call == "submit" {
		script = &f.submits
	}
	f.mu.Lock()
	f.calls = append(f.calls, call)
	f.mu.Unlock()
	answer := (*script)[0]
	if len(*script) > 1 {
		*script = (*script)[1:]
	}
	takes(answer.after)
	ref := ""
	if answer.outcome == channel.OutcomePending || answer.outcome == channel.OutcomeSucceeded {
		ref = reference
	}
	f.book.apply(answer.outcome, answer.code, ref)
	return answer
}

// follow is an activity FollowRefund that the run started.
type follow struct {
	key      contract.RefundKey
	known    contract.RefundState
	options  workflow.ActivityOptions
	attempts int
	canceled bool
	played   played
}

// refundStage is one run of ChannelRefund in virtual time, with a book for Postgres and a channel from a script. Every
// scene is set before run.
type refundStage struct {
	*scene
	refunds *fakeRefunds
	book    *refundBook
	id      string
	input   any
	follows []*follow
	// asActivity leaves FollowRefund to the test environment, which runs an activity ten times at most.
	asActivity bool
	result     contract.RefundResult
}

// newRefundStage sets a refund of 12.50 EUR and 40 credits, accepted just before the start, which a channel answers so.
func newRefundStage(t player, submit says, looks ...says) *refundStage {
	t.Helper()
	s := &refundStage{
		scene: newScene(t), id: "refund/acme/rf1", input: contract.RefundKey{Tenant: "acme", RefundID: "rf1"},
	}
	s.book = newRefundBook(s.env.Now, s.start.Add(-time.Second))
	s.refunds = &fakeRefunds{fake: newFake(), book: s.book, submits: []says{submit}, looks: append(looks, noAnswer)}
	if len(looks) > 0 {
		s.refunds.looks = looks
	}
	s.env.SetWorkerOptions(intercepted(&follower{stage: s}))
	s.env.RegisterActivity(s.refunds)
	return s
}

// closed sets a refund that an earlier run brought to that end.
func (s *refundStage) closed(state contract.RefundState) *refundStage {
	row := &s.book.row
	row.State, row.Sends, row.FirstSent, row.ChannelRef = state, 1, s.start.Add(-time.Hour), reference
	row.LastOutcome, row.LookUntil = string(state), row.FirstSent.Add(2*givesUp)
	s.book.ends = []contract.RefundState{state}
	return s
}

// run plays the refund to its end, which must be the row's.
func (s *refundStage) run() *refundStage {
	s.t.Helper()
	s.env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: s.id, TaskQueue: contract.TaskQueue})
	s.env.ExecuteWorkflow(contract.ChannelRefundWorkflow, s.input)
	require.True(s.t, s.env.IsWorkflowCompleted())
	require.Empty(s.t, s.book.broken())
	if s.err = s.env.GetWorkflowError(); s.err == nil {
		require.NoError(s.t, s.env.GetWorkflowResult(&s.result))
		row := s.book.row
		assert.Equal(s.t, contract.RefundResult{
			RefundID: "rf1", State: row.State, ChannelRef: row.ChannelRef, Amount: 1250, Currency: "eur", Credits: 40,
			Reason: "the customer asked",
		}, s.result)
		assert.False(s.t, row.State.Open(), "a closed run has a closed refund")
	}
	return s
}

func (s *refundStage) status() contract.RefundStatus {
	s.t.Helper()
	var status contract.RefundStatus
	answer, err := s.env.QueryWorkflow(contract.StatusQuery)
	require.NoError(s.t, err)
	require.NoError(s.t, answer.Get(&status))
	return status
}

// known lists the states that the activities FollowRefund were started in.
func (s *refundStage) known() []contract.RefundState {
	states := []contract.RefundState{}
	for _, f := range s.follows {
		states = append(states, f.known)
	}
	return states
}

// sent lists the calls of the channel.
func (s *refundStage) sent() []string {
	made := []string{}
	for _, call := range s.refunds.calls {
		if call == "submit" || call == "look" {
			made = append(made, call)
		}
	}
	return made
}

// fails makes the first calls of that name fail.
func (s *refundStage) fails(call string, times int, err error) {
	s.refunds.fault = func(made string, nth int) (error, error) {
		if made == call && nth <= times {
			return err, nil
		}
		return nil, nil
	}
}

// follower plays the activity FollowRefund as the server would: it repeats attempts for ever, at the moment that each asks
// for, and answers a cancel at once. An attempt that is under way then goes on to its end.
type follower struct {
	interceptor.WorkerInterceptorBase
	stage *refundStage
}

func (p *follower) InterceptWorkflow(
	_ workflow.Context, next interceptor.WorkflowInboundInterceptor,
) interceptor.WorkflowInboundInterceptor {
	in := &followerIn{stage: p.stage}
	in.Next = next
	return in
}

type followerIn struct {
	interceptor.WorkflowInboundInterceptorBase
	stage *refundStage
}

func (p *followerIn) Init(outbound interceptor.WorkflowOutboundInterceptor) error {
	out := &followerOut{stage: p.stage}
	out.Next = outbound
	return p.Next.Init(out)
}

type followerOut struct {
	interceptor.WorkflowOutboundInterceptorBase
	stage *refundStage
}

func (p *followerOut) UpsertTypedSearchAttributes(ctx workflow.Context, updates ...temporal.SearchAttributeUpdate) error {
	p.stage.note(updates)
	return p.Next.UpsertTypedSearchAttributes(ctx, updates...)
}

func (p *followerOut) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	if name == "LookUpRefund" {
		return p.Next.ExecuteActivity(ctx, name, args...)
	}
	s, request := p.stage, args[0].(activities.FollowRequest)
	f := &follow{key: request.RefundKey, known: request.Known, options: workflow.GetActivityOptions(ctx), played: played{inFlight: true}}
	s.follows = append(s.follows, f)
	if s.asActivity {
		return p.Next.ExecuteActivity(ctx, name, args...)
	}
	future, settable := workflow.NewFuture(ctx)
	f.played.settable = settable
	own, _ := workflow.NewDisconnectedContext(ctx)
	workflow.Go(own, func(own workflow.Context) {
		if workflow.Await(own, func() bool { return ctx.Err() != nil || !f.played.inFlight }) == nil && f.played.inFlight {
			f.canceled, f.played.inFlight = true, false
			settable.SetError(temporal.NewCanceledError())
		}
	})
	workflow.Go(own, func(own workflow.Context) {
		for f.played.inFlight {
			f.attempts++
			answer, err := s.refunds.attempt(request, func(d time.Duration) { _ = workflow.Sleep(own, d) })
			failure, known := errors.AsType[*temporal.ApplicationError](err)
			switch {
			case !f.played.inFlight:
			case err == nil:
				f.played.end(act{value: answer})
			case known && failure.NonRetryable():
				f.played.end(goesWrong(0, applicationFailure(failure.Message(), failure.Type(), true)))
			default:
				after := f.options.RetryPolicy.InitialInterval
				if known && failure.NextRetryDelay() > 0 {
					after = failure.NextRetryDelay()
				}
				again := workflow.NewTimer(own, after)
				_ = workflow.Await(own, func() bool { return again.IsReady() || !f.played.inFlight })
			}
		}
	})
	return future
}
