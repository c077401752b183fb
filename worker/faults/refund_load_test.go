package faults_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

const (
	loadRefunds = 1000
	loadOrders  = 10
	loadAmount  = 100
	// loadAnswer is how long the channel takes for every answer.
	loadAnswer = 200 * time.Millisecond
	// loadFirst and loadPauses are when each refund is looked up.
	loadFirst     = 20 * time.Second
	loadMegabytes = 300
)

var loadPauses = []time.Duration{20 * time.Second, 30 * time.Second}

// slowFront answers for the simulator after a while, and keeps when each refund was asked for by its reference.
type slowFront struct {
	far http.Handler

	mu      sync.Mutex
	asked   map[string][]time.Time
	busy    int
	busiest int
}

func (f *slowFront) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	f.mu.Lock()
	if reference, ok := strings.CutPrefix(r.URL.Path, "/v1/refunds/"); ok {
		f.asked[reference] = append(f.asked[reference], now)
	}
	f.busy++
	f.busiest = max(f.busiest, f.busy)
	f.mu.Unlock()
	<-time.After(loadAnswer)
	f.far.ServeHTTP(w, r)
	f.mu.Lock()
	f.busy--
	f.mu.Unlock()
}

// lateness is by how much a look-up came later than it was due, and how much it may.
type lateness struct {
	late, allowed time.Duration
	at            time.Time
}

// latenesses holds every look-up against the schedule: the first against the sending, the others against the answer before.
func (f *slowFront) latenesses(s *refundStage) (all []lateness) {
	s.t.Helper()
	rows, err := s.direct.Query(s.ctx(), `SELECT channel_ref, first_sent_at FROM reclaim.refunds WHERE tenant_id = $1`, s.tenant)
	require.NoError(s.t, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	for rows.Next() {
		var reference string
		var due time.Time
		require.NoError(s.t, rows.Scan(&reference, &due))
		pause := loadFirst
		for n, at := range f.asked[reference] {
			all = append(all, lateness{at.Sub(due.Add(pause)), pause/10 + time.Second, at})
			due, pause = at.Add(loadAnswer), loadPauses[min(n, len(loadPauses)-1)]
		}
	}
	require.NoError(s.t, rows.Err())
	return all
}

var memoryLine = regexp.MustCompile(`(VmHWM|VmRSS):\s+(\d+) kB`)

// memory is what a process holds now and what it held at most, in MB. ok is false where the system does not tell.
func (c *child) memory() (now, most int, ok bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		return 0, 0, false
	}
	for _, found := range memoryLine.FindAllStringSubmatch(string(status), -1) {
		kilobytes, err := strconv.Atoi(found[2])
		require.NoError(c.t, err)
		if found[1] == "VmHWM" {
			most = kilobytes >> 10
		} else {
			now = kilobytes >> 10
		}
	}
	return now, most, true
}

// It is played alone, since it measures.
func TestAThousandRefundsInFlightAreConfirmedOnTime(t *testing.T) {
	needsFaults(t)
	s := sharedWorld(t).apart(t).stage(t, "").withChannel("")
	s.patience = 5 * time.Minute
	front := &slowFront{far: s.simulator, asked: map[string][]time.Time{}}
	server := httptest.NewServer(front)
	t.Cleanup(server.Close)
	s.connect(server.URL, fmt.Sprintf("first_query = %q\npoll = [%q, %q]\n", loadFirst, loadPauses[0], loadPauses[1]))
	s.simulator.ScriptDefault(life(step(0, "pending")))
	for n := range loadOrders {
		s.addOrder(fmt.Sprintf("load%d", n), account, loadRefunds/loadOrders*loadAmount, loadRefunds/loadOrders)
	}
	worker := s.startChild("", s.environment("RECLAIM_CONNECTIONS=16")...)
	idle, _, _ := worker.memory()

	began := time.Now()
	var asking sync.WaitGroup
	numbers := make(chan int)
	for range 8 {
		asking.Go(func() {
			for n := range numbers {
				request := s.request(n, loadAmount)
				request.OrderID = fmt.Sprintf("load%d", n%loadOrders)
				_, err := s.client.RequestRefund(s.ctx(), request)
				assert.NoError(t, err)
			}
		})
	}
	for n := range loadRefunds {
		s.refunds = append(s.refunds, s.number(n))
		numbers <- n
	}
	close(numbers)
	asking.Wait()
	accepted := time.Since(began)
	count := func(where string) int {
		return value[int](s.stage, `SELECT count(*) FROM reclaim.refunds WHERE tenant_id = $1 AND `+where, s.tenant)
	}
	within(t, s.patience, "all are pending", func() bool { return count("state = 'pending'") == loadRefunds })
	pending := time.Since(began)
	within(t, s.patience, "all were looked up three times", func() bool { return count("look_count >= 3") == loadRefunds })
	inFlight, _, _ := worker.memory()
	told := time.Now()
	for _, id := range s.refunds {
		s.simulator.Script(id, life(step(0, "succeeded")))
	}
	within(t, s.patience, "all are confirmed", func() bool { return count("state = 'succeeded'") == loadRefunds })
	confirmed := time.Since(told)
	within(t, s.patience, "all runs have ended", func() bool {
		open, err := s.temporal.CountWorkflow(s.ctx(), &workflowservice.CountWorkflowExecutionsRequest{
			Query: fmt.Sprintf("ReclaimTenant = '%s' AND ExecutionStatus = 'Running'", s.tenant),
		})
		return err == nil && open.GetCount() == 0
	})

	all := front.latenesses(s)
	buckets := map[int][3]int{}
	for _, one := range all {
		b := int(one.at.Sub(began) / (5 * time.Second))
		v := buckets[b]
		v[0]++
		if one.late > one.allowed {
			v[1]++
		}
		v[2] = max(v[2], int(one.late/time.Millisecond))
		buckets[b] = v
	}
	for b := range 60 {
		if v, ok := buckets[b]; ok {
			t.Logf("%3d s: %v", b*5, v)
		}
	}
	t.Logf("told at %s", told.Sub(began))
	slices.SortFunc(all, func(a, b lateness) int { return int(a.late - b.late) })
	tooLate := 0
	for _, one := range all {
		if one.late > one.allowed {
			tooLate++
		}
	}
	at := func(share float64) time.Duration {
		return all[min(int(share*float64(len(all))), len(all)-1)].late.Round(time.Millisecond)
	}
	events := len(s.historyOf(contract.RefundWorkflowID(s.tenant, s.number(0)), ""))
	t.Logf("%d refunds: accepted in %s (%.0f/s), all pending after %s, all confirmed %s after the channel had sent the money",
		loadRefunds, accepted.Round(time.Millisecond), loadRefunds/accepted.Seconds(), pending.Round(time.Millisecond),
		confirmed.Round(time.Millisecond))
	t.Logf("%d look-ups, at most %d requests at once, answers after %s; later than due: p50 %s, p99 %s, most %s; beyond 10 %% + 1 s: %d",
		len(all), front.busiest, loadAnswer, at(0.5), at(0.99), at(1), tooLate)
	t.Logf("events in a history: %d", events)
	assert.GreaterOrEqual(t, len(all), 3*loadRefunds)
	assert.Zero(t, tooLate, "look-ups came too late")
	if _, most, ok := worker.memory(); ok {
		t.Logf("the worker process held %d MB when idle, %d MB with all in flight, %d MB at most", idle, inFlight, most)
		assert.Less(t, most, loadMegabytes)
	}
	for n := range loadOrders {
		assert.EqualValues(t, loadRefunds/loadOrders*loadAmount, value[int64](s.stage,
			`SELECT refunded FROM reclaim.orders WHERE tenant_id = $1 AND order_id = $2`, s.tenant, fmt.Sprintf("load%d", n)))
	}
	sends := 0
	for _, n := range s.simulator.Book().Sends {
		sends += n
	}
	assert.Equal(t, loadRefunds, sends, "each was sent once")
}
