package faults_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Names of the crew's activities.
const (
	workActivity  = "Work"
	probeActivity = "Probe"
)

// crew does the work of every job in the way that its test asks for.
type crew struct {
	queue string
	mu    sync.Mutex
	parts map[string]*part
	// begun are the work activities that have reached the crew.
	begun map[activityRun]bool
}

// activityRun names an activity of a run.
type activityRun struct{ runID, activityID string }

// part is what the crew does for one job.
type part struct {
	// calls are the work activities under way whose test has not taken them yet.
	calls chan *call
	over  chan struct{}

	mu       sync.Mutex
	invoked  int
	stubborn bool
	work     func(context.Context, contract.WorkMeta) (any, error)
	probe    func(contract.WorkMeta) (contract.ProbeAnswer, error)
}

// call is a work activity under way. It ends when the test says so, or when it is asked to stop, unless it is stubborn.
type call struct {
	input   json.RawMessage
	meta    contract.WorkMeta
	ctx     context.Context
	answers chan answer
}

type answer struct {
	output any
	err    error
}

func (c *call) deliver(output any) { c.answers <- answer{output: output} }
func (c *call) fail(err error)     { c.answers <- answer{err: err} }

func newCrew(queue string) *crew {
	return &crew{queue: queue, parts: map[string]*part{}, begun: map[activityRun]bool{}}
}

// begins says whether the activity is news to the crew, and notes that it has begun.
func (c *crew) begins(a activityRun) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	news := !c.begun[a]
	c.begun[a] = true
	return news
}

func (c *crew) hasBegun(a activityRun) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun[a]
}

// start runs the crew's worker, set up as the guide tells work workers to be.
func (c *crew) start(t *testing.T, address string) (stop func()) {
	t.Helper()
	return c.startOn(t, dial(t, address, workRPCTimeout))
}

// startOn runs the crew's worker on a client, which it closes in the end.
func (c *crew) startOn(t *testing.T, temporal client.Client) (stop func()) {
	t.Helper()
	worker := sdkworker.New(temporal, c.queue, sdkworker.Options{
		DefaultHeartbeatThrottleInterval: 200 * time.Millisecond,
		MaxHeartbeatThrottleInterval:     200 * time.Millisecond,
		DisableRegistrationAliasing:      true,
	})
	worker.RegisterActivityWithOptions(c.doWork, activity.RegisterOptions{Name: workActivity})
	worker.RegisterActivityWithOptions(c.doProbe, activity.RegisterOptions{Name: probeActivity})
	require.NoError(t, worker.Start())
	return sync.OnceFunc(func() {
		worker.Stop()
		temporal.Close()
	})
}

// part returns the part of a job.
func (c *crew) part(tenant, jobID string) *part {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := contract.JobWorkflowID(tenant, jobID)
	if c.parts[id] == nil {
		c.parts[id] = &part{calls: make(chan *call, 1000), over: make(chan struct{})}
	}
	return c.parts[id]
}

// invocations counts the work activities that have begun, the same work under the same key included.
func (p *part) invocations() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.invoked
}

func (c *crew) doWork(ctx context.Context, input json.RawMessage, meta contract.WorkMeta) (any, error) {
	info := activity.GetInfo(ctx)
	if !c.begins(activityRun{info.WorkflowExecution.RunID, info.ActivityID}) {
		return nil, activity.ErrResultPending // it came so late that it was taken for lost
	}
	return c.perform(ctx, input, meta)
}

// perform does work that has reached the crew, in an activity or in one that was lost.
func (c *crew) perform(ctx context.Context, input json.RawMessage, meta contract.WorkMeta) (any, error) {
	p := c.part(meta.Tenant, meta.JobID)
	p.mu.Lock()
	p.invoked++
	work, stubborn := p.work, p.stubborn
	p.mu.Unlock()
	if work != nil {
		return work(ctx, meta)
	}
	this := &call{input: input, meta: meta, ctx: ctx, answers: make(chan answer, 1)}
	p.calls <- this
	beat := time.NewTicker(100 * time.Millisecond)
	defer beat.Stop()
	for {
		select {
		case a := <-this.answers:
			return a.output, a.err
		case <-p.over:
			return nil, fmt.Errorf("the test is over")
		case <-beat.C:
			heartbeat(ctx)
			if ctx.Err() != nil && !stubborn {
				return nil, ctx.Err()
			}
		}
	}
}

// heartbeat lets the server know that the work goes on. For lost work, findLost does.
func heartbeat(ctx context.Context) {
	if activity.IsActivity(ctx) {
		activity.RecordHeartbeat(ctx)
	}
}

// afterLoss is how long a started activity may be on its way to the crew before it is taken for lost.
const afterLoss = 10 * time.Second

// findLost looks for work that the server holds for started and that never reached the crew, and has it done, until ctx
// ends. A server whose machine is so busy that noting a start takes it more than a second notes it and then hands the
// work to nobody; it would find out by the timeout of the heartbeats, minutes later.
func (s *stage) findLost(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(afterLoss):
		}
		s.noting.Lock()
		jobs := slices.Clone(s.jobs)
		s.noting.Unlock()
		for _, id := range jobs {
			// The servers may be away: there is another look.
			described, err := s.temporal.DescribeWorkflow(ctx, contract.JobWorkflowID(s.tenant, id), "")
			if err != nil {
				continue
			}
			runID := described.WorkflowExecution.RunID
			for _, pending := range described.RawResponse.GetPendingActivities() {
				lost := activityRun{runID, pending.GetActivityId()}
				if pending.GetActivityType().GetName() == workActivity &&
					pending.GetState() != enumspb.PENDING_ACTIVITY_STATE_SCHEDULED &&
					time.Since(pending.GetLastStartedTime().AsTime()) > afterLoss && !s.crew.hasBegun(lost) {
					s.takeOver(ctx, id, lost, pending)
				}
			}
		}
	}
}

// takeOver does lost work in the place of the worker that never got it.
func (s *stage) takeOver(ctx context.Context, jobID string, lost activityRun, pending *workflowpb.PendingActivityInfo) {
	workflowID := contract.JobWorkflowID(s.tenant, jobID)
	var input json.RawMessage
	var meta contract.WorkMeta
	page := s.temporal.GetWorkflowHistory(ctx, workflowID, lost.runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for found := false; !found; {
		if !page.HasNext() {
			return
		}
		event, err := page.Next()
		if err != nil {
			return
		}
		if scheduled := event.GetActivityTaskScheduledEventAttributes(); scheduled.GetActivityId() == lost.activityID {
			if s.converting().DataConverter.FromPayloads(scheduled.GetInput(), &input, &meta) != nil {
				return
			}
			found = true
		}
	}
	if !s.crew.begins(lost) {
		return
	}
	s.t.Logf("the server handed the work of job %s to nobody: it is taken over", jobID)
	deadline := pending.GetLastStartedTime().AsTime().Add(pending.GetActivityOptions().GetStartToCloseTimeout().AsDuration())
	working, stop := context.WithDeadline(ctx, deadline)
	go func() {
		for working.Err() == nil {
			if s.temporal.RecordActivityHeartbeatByID(working, "default", workflowID, lost.runID, lost.activityID) != nil {
				stop() // it is canceled, or over
			}
			select {
			case <-working.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	go func() {
		defer stop()
		output, err := s.crew.perform(working, input, meta)
		if working.Err() != nil && errors.Is(err, working.Err()) {
			err = temporal.NewCanceledError()
		}
		// Past its deadline nobody takes the answer, as from any worker.
		_ = s.temporal.CompleteActivityByID(ctx, "default", workflowID, lost.runID, lost.activityID, output, err)
	}()
}

func (c *crew) doProbe(_ context.Context, meta contract.WorkMeta) (contract.ProbeAnswer, error) {
	p := c.part(meta.Tenant, meta.JobID)
	p.mu.Lock()
	probe := p.probe
	p.mu.Unlock()
	if probe == nil {
		return contract.ProbeAnswer{State: contract.ProbeUnknown}, nil
	}
	return probe(meta)
}

// shelf is where work that recognises its idempotency key keeps its results: it does the real work once for each key,
// and answers every other call with that key from what is there, as worker/render does.
type shelf struct {
	mu   sync.Mutex
	done map[string]*shelved
}

type shelved struct {
	finished chan struct{}
	output   any
}

func newShelf() *shelf { return &shelf{done: map[string]*shelved{}} }

// keep returns the result under the key, made by do where there is none. A call that finds another one at it waits for
// that one's end.
func (s *shelf) keep(ctx context.Context, key string, do func() any) (any, error) {
	s.mu.Lock()
	entry, known := s.done[key]
	if !known {
		entry = &shelved{finished: make(chan struct{})}
		s.done[key] = entry
	}
	s.mu.Unlock()
	if !known {
		entry.output = do()
		close(entry.finished)
		return entry.output, nil
	}
	for {
		select {
		case <-entry.finished:
			return entry.output, nil
		case <-time.After(100 * time.Millisecond):
			heartbeat(ctx)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
	}
}

// runs counts the real executions whose key begins with the given text.
func (s *shelf) runs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.done)
}
