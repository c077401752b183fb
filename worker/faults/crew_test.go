package faults_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
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
}

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

func newCrew(queue string) *crew { return &crew{queue: queue, parts: map[string]*part{}} }

// start runs the crew's worker, set up as the guide tells work workers to be.
func (c *crew) start(t *testing.T, address string) (stop func()) {
	t.Helper()
	temporal := dial(t, address, workRPCTimeout)
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
			activity.RecordHeartbeat(ctx)
			if ctx.Err() != nil && !stubborn {
				return nil, ctx.Err()
			}
		}
	}
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
			activity.RecordHeartbeat(ctx)
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
