package faults_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

const (
	// killedPromise is short, so that the refund is made soon.
	killedPromise = 3 * time.Second
	// overdue is how long the work goes on after the promise: longer than the 10 to 15 s that a new worker needs to take
	// over, so that the refund is always made before the delivery.
	overdue = 30 * time.Second
	// killedTimeout is soon over where an overloaded server hands the work to nobody.
	killedTimeout = time.Minute
)

// killing bounds the stages whose worker processes are started and killed together: more of them keep a small machine so busy
// with starting that the server does not answer in time.
var killing = make(chan struct{}, 20)

// killStage gives a stage whose runs are carried by worker processes of its own, and whose work outlasts the promise.
func killStage(t *testing.T) (*stage, *shelf) {
	t.Helper()
	t.Parallel()
	killing <- struct{}{}
	t.Cleanup(func() { <-killing })
	s := sharedWorld(t).stage(t, "")
	s.queue = "reclaim-" + s.tenant
	s.client = s.asker(s.queue)
	s.patience = 3 * time.Minute
	done := newShelf()
	s.cast("j1", func(p *part) {
		p.work = func(ctx context.Context, meta contract.WorkMeta) (any, error) {
			deadline, err := time.Parse(time.RFC3339Nano, meta.PromiseDeadline)
			if err != nil {
				return nil, err
			}
			for until := time.After(time.Until(deadline.Add(overdue))); ; {
				select {
				case <-until:
					return done.keep(ctx, meta.IdempotencyKey, func() any { return "late" })
				case <-time.After(200 * time.Millisecond):
					heartbeat(ctx)
					if ctx.Err() != nil {
						return nil, ctx.Err()
					}
				}
			}
		}
	})
	return s, done
}

// reachesEvent waits until the history of the job's run has an event of that number.
func (s *stage) reachesEvent(jobID string, number int64) {
	s.t.Helper()
	page := s.temporal.GetWorkflowHistory(s.ctx(), contract.JobWorkflowID(s.tenant, jobID), "", true,
		enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for page.HasNext() {
		event, err := page.Next()
		require.NoError(s.t, err)
		if event.GetEventId() >= number {
			return
		}
	}
	s.t.Fatalf("the history ended before event %d", number)
}

// The late-success story without a fault has 22 events: start; task, charge, timer, work; timer fired, task, refund;
// work done, task, settle, end.
func TestAWorkerKilledAfterAnyEventLosesAndDoublesNothing(t *testing.T) {
	needsFaults(t)
	t.Parallel()
	for number := int64(1); number <= 22; number++ {
		t.Run(fmt.Sprintf("after event %d", number), func(t *testing.T) {
			s, done := killStage(t)
			first := s.startChild("")
			began := time.Now()
			s.startPlain(s.job("j1", promised(killedPromise), timeout(killedTimeout)), "j1")
			s.reachesEvent("j1", number)
			first.kill()
			events := len(s.history("j1", ""))
			s.startChild("")
			s.assertReclaimed(s.runEnds("j1"))
			assert.EqualValues(t, credits-cost, s.balance())
			assert.Equal(t, 1, done.runs())
			assert.Equal(t, 1, s.part("j1").invocations())
			t.Logf("killed with %d events in the history; the story took %s", events, time.Since(began).Round(time.Second))
		})
	}
}

func TestAWorkerKilledWithAStatementInFlight(t *testing.T) {
	needsFaults(t)
	t.Parallel()
	for _, name := range []string{"ChargeJob", "RefundJob", "SettleJob"} {
		for _, how := range []string{
			// The statement takes effect after its worker died.
			"arrives after the death",
			// It took effect; the worker died before the reply.
			"loses its reply",
			// It is under way for so long that another worker has long told the story's end.
			"arrives after the end",
		} {
			for _, canceled := range []bool{false, true} {
				after := ""
				if canceled {
					after = ", then a cancel"
				}
				t.Run(name+" "+how+after, func(t *testing.T) { killInFlight(t, name, how, canceled) })
			}
		}
	}
}

func killInFlight(t *testing.T, name, how string, canceled bool) {
	s, done := killStage(t)
	proxy := schematest.NewLossyProxy(t, s.database.Address)
	first := s.startChild(proxy.URL(s.database.AppURL))
	release := func() {}
	if how == "loses its reply" {
		proxy.LoseReply(statement(name), 1)
	} else {
		release = proxy.Hold(statement(name))
	}
	s.startPlain(s.job("j1", promised(killedPromise), timeout(killedTimeout)), "j1")
	within(t, s.patience, name+" is in flight", func() bool { return proxy.Held()+proxy.Lost() > 0 })
	first.kill()
	if how == "arrives after the death" {
		release()
	}
	if canceled {
		// Past the client, which would refuse to cancel a job whose row is closed.
		require.NoError(t, s.temporal.CancelWorkflow(s.ctx(), contract.JobWorkflowID(s.tenant, "j1"), ""))
	}
	s.startChild("")
	result := s.runEnds("j1")
	verify := func() {
		t.Helper()
		switch {
		case canceled && name != "SettleJob":
			s.assertRefunded(result, contract.StateCanceled)
			assert.Zero(t, done.runs())
			assert.EqualValues(t, credits, s.balance())
		default:
			s.assertReclaimed(result)
			assert.Equal(t, 1, done.runs())
			assert.EqualValues(t, credits-cost, s.balance())
		}
	}
	verify()
	if canceled && name == "ChargeJob" {
		assert.Zero(t, s.part("j1").invocations(), "a canceled job's work is not begun")
	}
	if how == "arrives after the end" {
		release()
		within(t, patience, "the delayed statement is sent", func() bool { return proxy.Held() == 0 })
		for until := time.Now().Add(2 * time.Second); time.Now().Before(until); <-time.After(100 * time.Millisecond) {
			verify()
		}
	}
}

func TestT31_AWorkerStoppedDuringTheChargeFinishesItOnce(t *testing.T) {
	needsFaults(t)
	s, _ := killStage(t)
	proxy := schematest.NewLossyProxy(t, s.database.Address)
	first := s.startChild(proxy.URL(s.database.AppURL))
	release := proxy.Hold(statement("ChargeJob"))
	s.cast("j1", answersAtOnce("done"))
	s.startPlain(s.job("j1"), "j1")
	eventually(t, "the charge is in flight", func() bool { return proxy.Held() > 0 })
	stopped := make(chan time.Duration, 1)
	go func() { stopped <- first.stop() }()
	eventually(t, "the worker is stopping", func() bool { return strings.Contains(first.log.String(), "stopping") })
	release()
	assert.Less(t, <-stopped, 30*time.Second)
	s.startChild("")
	s.assertDelivered(s.runEnds("j1"))
	assert.Equal(t, 1, s.part("j1").invocations())
}
