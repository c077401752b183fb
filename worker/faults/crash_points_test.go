package faults_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"

	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// point is a moment at which something breaks in a playing of a story. arm is called before the story begins.
type point struct {
	name string
	arm  func(*play)
}

// trace is what a story does where nothing breaks, by which its crash points are found.
type trace struct {
	runs []tracedRun
	// worker and gateway count the statements that either sent.
	worker, gateway counted
	attempts        int
	probes          bool
}

// tracedRun is a run of the story: of its job or its refund, the n-th from 0. The ends are the numbers of the events after
// which the worker can die at different moments.
type tracedRun struct {
	of   string
	n    int
	ends []int64
}

// counted counts statements by their name.
type counted struct {
	mu    sync.Mutex
	times map[string]int
}

// count lets every statement pass and counts it.
func (c *counted) count(proxy *schematest.LossyProxy) {
	c.times = map[string]int{}
	proxy.LoseReply(func(sql string) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.times[nameOf(sql)]++
		return false
	}, 0)
}

// names lists the statements that are worth to be broken in.
func (c *counted) names(worth ...string) (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.times)) {
		if slices.Contains(worth, name) {
			names = append(names, name)
		}
	}
	return names
}

const commit = "COMMIT"

// nameOf is the name under which the statement stands in schema/queries.
func nameOf(sql string) string {
	if strings.EqualFold(strings.TrimSpace(sql), commit) {
		return commit
	}
	_, rest, _ := strings.Cut(sql, "-- name: ")
	name, _, _ := strings.Cut(rest, " ")
	return name
}

// workerWrites are the statements by which a worker changes something, and gatewayWrites those of the HTTP door.
var (
	workerWrites = []string{
		"ChargeJob", "RefundJob", "SettleJob", "CloseJob", "ParkJob", "RecordAttempt", "RecordJobEvent", "ResolveJob", "AcceptRefund",
		"BeginSend", "ApplyEvidence", "CancelRefund", "FlagRefund", "DeliverOutbox", commit,
	}
	gatewayWrites = []string{"TopUpAccount", "AddOrder", "AcceptRefund", commit}
)

// job and refund are what runs are of.
const (
	ofJob    = "job"
	ofRefund = "refund"
)

func (p *play) workflowID(of string) string {
	if of == ofJob {
		return contract.JobWorkflowID(p.tenant, "j1")
	}
	return contract.RefundWorkflowID(p.tenant, p.refunds[0])
}

// traceRuns looks at what the story left behind.
func (p *play) traceRuns(t *trace) {
	p.t.Helper()
	subjects := map[string]bool{ofJob: len(p.jobs) > 0, ofRefund: len(p.refunds) > 0}
	for _, of := range []string{ofJob, ofRefund} {
		if !subjects[of] {
			continue
		}
		ids := p.runsOf(p.workflowID(of))
		slices.Reverse(ids) // the newest comes first
		for n, id := range ids[:min(len(ids), 2)] {
			t.runs = append(t.runs, tracedRun{of, n, moments(p.historyOf(p.workflowID(of), id))})
		}
	}
	for p.begun(t.attempts + 1) {
		t.attempts++
	}
	t.probes = p.probed()
}

// moments lists the last events of what the server writes at once: a worker cannot die in between.
func moments(events []*historypb.HistoryEvent) (ends []int64) {
	for n, event := range events {
		last := n+1 == len(events)
		if !last {
			switch events[n+1].GetEventType() {
			case enumspb.EVENT_TYPE_WORKFLOW_TASK_STARTED, enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
				enumspb.EVENT_TYPE_ACTIVITY_TASK_STARTED, enumspb.EVENT_TYPE_TIMER_FIRED,
				enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED,
				enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
				last = true
			}
		}
		if last {
			ends = append(ends, event.GetEventId())
		}
	}
	return ends
}

// reachesMoment waits until the n-th run of a workflow has so many events; false means that it never will, or that the story ended.
func (p *play) reachesMoment(ctx context.Context, workflowID string, n int, number int64) bool {
	runs := []string{}
	found := waitFor(ctx, func() bool {
		described, err := p.temporal.DescribeWorkflow(ctx, workflowID, "")
		if err == nil && !slices.Contains(runs, described.WorkflowExecution.RunID) {
			runs = append(runs, described.WorkflowExecution.RunID)
		}
		return len(runs) > n
	})
	if !found {
		return false
	}
	page := p.temporal.GetWorkflowHistory(ctx, workflowID, runs[n], true, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for page.HasNext() {
		event, err := page.Next()
		if err != nil {
			return false
		}
		if event.GetEventId() >= number {
			return true
		}
	}
	return false
}

// afterEachEvent kills the worker at every moment of every run: twice in one playing, half of the run apart.
func afterEachEvent(_ story, t *trace) (points []point) {
	for _, run := range t.runs {
		for first := range (len(run.ends) + 1) / 2 {
			numbers := []int64{run.ends[first]}
			if second := first + (len(run.ends)+1)/2; second < len(run.ends) {
				numbers = append(numbers, run.ends[second])
			}
			points = append(points, point{
				fmt.Sprintf("%s run %d, events %v", run.of, run.n+1, numbers),
				func(p *play) {
					p.strike(func(ctx context.Context) {
						// The refund's number is known once it is asked for.
						known := waitFor(ctx, func() bool { return run.of == ofJob || p.asked.Load() })
						for _, number := range numbers {
							if !known || !p.reachesMoment(ctx, p.workflowID(run.of), run.n, number) {
								return
							}
							p.killWorker()
						}
					})
				},
			})
		}
	}
	return points
}

// How a process dies around a statement.
const (
	beforeIt = "before it"         // which never reaches Postgres
	inFlight = "with it in flight" // it takes effect after the death
	afterIt  = "after its commit"  // whose answer nobody got
)

// aroundStatement kills a process around the first execution of a statement.
func (p *play) aroundStatement(proxy *schematest.LossyProxy, name, how string, kill func()) {
	var fired atomic.Bool
	match := func(sql string) bool { return nameOf(sql) == name && !fired.Swap(true) }
	release := func() {}
	if how == afterIt {
		proxy.LoseReply(match, 1)
	} else {
		release = proxy.Hold(match)
	}
	p.strike(func(ctx context.Context) {
		if !waitFor(ctx, func() bool { return fired.Load() && (how != afterIt || proxy.Lost() > 0) }) {
			return
		}
		kill()
		if how == inFlight {
			release()
		}
	})
}

func aroundEach(c *counted, worth []string, arm func(p *play, name, how string)) (points []point) {
	for _, name := range c.names(worth...) {
		for _, how := range []string{beforeIt, inFlight, afterIt} {
			points = append(points, point{how + " " + name, func(p *play) { arm(p, name, how) }})
		}
	}
	return points
}

// aroundEachStatement kills the worker around everything that it writes.
func aroundEachStatement(_ story, t *trace) []point {
	return aroundEach(&t.worker, workerWrites, func(p *play, name, how string) {
		p.aroundStatement(p.proxy, name, how, p.killWorker)
	})
}

// losingEachReply loses the first reply to each statement that the worker writes by, and the worker lives.
func losingEachReply(_ story, t *trace) []point {
	return []point{{"of each", func(p *play) {
		for _, name := range t.worker.names(workerWrites...) {
			p.proxy.LoseReply(func(sql string) bool { return nameOf(sql) == name }, 1)
		}
		p.strike(func(ctx context.Context) {
			<-ctx.Done()
			p.struck.Add(int32(p.proxy.Lost()))
		})
	}}}
}

// whileItWorks kills the process that does the work: in each attempt, after each, and when it was asked what became of one.
func whileItWorks(s story, t *trace) (points []point) {
	if !s.works {
		return nil
	}
	kill := func(name string, when func(p *play) bool) {
		points = append(points, point{name, func(p *play) {
			p.performApart()
			p.strike(func(ctx context.Context) {
				if waitFor(ctx, func() bool { return when(p) }) {
					p.killPerformer()
				}
			})
		}})
	}
	for attempt := 1; attempt <= t.attempts; attempt++ {
		kill(fmt.Sprintf("in attempt %d", attempt), func(p *play) bool { return p.begun(attempt) })
	}
	kill("with its result kept", (*play).made)
	if t.probes {
		kill("asked by the probe", (*play).probed)
	}
	return points
}

// atTheDoor kills the HTTP door around everything that it writes, and while it waits for the job's charge.
func atTheDoor(s story, t *trace) (points []point) {
	if !s.knocks {
		return nil
	}
	points = aroundEach(&t.gateway, gatewayWrites, func(p *play, name, how string) {
		p.aroundStatement(p.door.proxy, name, how, p.killGateway)
	})
	if s.works {
		for _, name := range []string{"ChargeJob", "SettleJob"} {
			points = append(points, point{"while it waits for " + name, func(p *play) {
				p.aroundStatement(p.proxy, name, inFlight, p.killGateway)
			}})
		}
	}
	return points
}

// theChannelsAnswers go wrong in each way, and the worker is killed while it waits for one.
func theChannelsAnswers(s story, _ *trace) (points []point) {
	if !s.pays {
		return nil
	}
	for _, c := range []struct {
		name   string
		script simulator.Script
	}{
		{"to the request, which was not taken", mistreated(simulator.Fault{Kind: simulator.FaultLost})},
		{"to the request, which was taken", mistreated(simulator.Fault{Kind: simulator.FaultLost, Applied: true})},
		{"to the request and the first look-ups", simulator.Script{
			Create: []simulator.Fault{{Kind: simulator.FaultLost, Applied: true}}, Lookup: []simulator.Fault{{Kind: simulator.FaultLost, Times: 2}},
		}},
	} {
		points = append(points, point{c.name, func(p *play) {
			p.answers = c.script
			p.strike(func(ctx context.Context) {
				if waitFor(ctx, func() bool { return p.asked.Load() && p.simulator.Sends(p.refunds[0]) > 0 }) {
					p.struck.Add(1)
				}
			})
		}})
	}
	for _, applied := range []bool{false, true} {
		name := "the worker is killed while it waits, the request not taken"
		if applied {
			name = "the worker is killed while it waits, the request taken"
		}
		points = append(points, point{name, func(p *play) {
			p.answers = mistreated(simulator.Fault{Kind: simulator.FaultHang, Applied: applied})
			p.strike(func(ctx context.Context) {
				called := waitFor(ctx, func() bool { return p.asked.Load() }) && waitFor(ctx, func() bool {
					return p.simulator.Sends(p.refunds[0]) == 1 && (p.simulator.Applied(p.refunds[0]) == 1) == applied
				})
				if called {
					p.killWorker()
				}
			})
		}})
	}
	return points
}
