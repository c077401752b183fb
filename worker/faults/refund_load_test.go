package faults_test

import (
	"cmp"
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

	"github.com/reclaimhq/reclaim/workflows/contract"
)

const (
	// loadEnv is how many refunds are in flight together, a multiple of the orders.
	loadEnv    = "RECLAIM_IN_FLIGHT"
	loadOrders = 10
	loadAmount = 100
	// loadPace is the pause between two requests: a burst would measure how fast the development server starts runs.
	loadPace = 80 * time.Millisecond
	// loadAnswer is how long the channel takes for every answer.
	loadAnswer = 200 * time.Millisecond
	// loadFirst and loadPauses are when each refund is looked up.
	loadFirst     = 20 * time.Second
	loadMegabytes = 300
	// loadLate is how many in a thousand look-ups may be too late: the machine has more to do than this test.
	loadLate = 10
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
	f.mu.Lock()
	f.busy--
	f.mu.Unlock()
	f.far.ServeHTTP(w, r)
}

// punctuality tells how late the look-ups were, and how many were later than they may be.
func punctuality(all []lateness) (words string, tooLate int) {
	if len(all) == 0 {
		return "no look-ups", 0
	}
	slices.SortFunc(all, func(a, b lateness) int { return int(a.late - b.late) })
	for _, one := range all {
		if one.late > one.allowed {
			tooLate++
		}
	}
	at := func(share float64) time.Duration {
		return all[min(int(share*float64(len(all))), len(all)-1)].late.Round(time.Millisecond)
	}
	return fmt.Sprintf("%d look-ups; later than due: p50 %s, p99 %s, most %s; by more than 10 %% and 1 s: %d", len(all), at(0.5),
		at(0.99), at(1), tooLate), tooLate
}

// lateness is by how much a look-up came later than it was due, and how much it may.
type lateness struct {
	at            time.Time
	late, allowed time.Duration
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
			all = append(all, lateness{at, at.Sub(due.Add(pause)), pause/10 + time.Second})
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
func TestManyRefundsInFlightAreConfirmedOnTime(t *testing.T) {
	needsFaults(t)
	refunds, err := strconv.Atoi(cmp.Or(os.Getenv(loadEnv), "200"))
	require.NoError(t, err)
	require.Positive(t, refunds/loadOrders)
	require.Zero(t, refunds%loadOrders, "%s must be a multiple of %d", loadEnv, loadOrders)
	// Few are watched for as long as they are looked up twice.
	looks, watched := 2, 20*time.Second
	if refunds >= 1000 {
		looks, watched = 3, 90*time.Second
	}
	s := sharedWorld(t).apart(t).stage(t, "").withChannel("")
	s.patience = 5 * time.Minute
	front := &slowFront{far: s.simulator, asked: map[string][]time.Time{}}
	server := httptest.NewServer(front)
	t.Cleanup(server.Close)
	s.connect(server.URL, fmt.Sprintf("first_query = %q\npoll = [%q, %q]\n", loadFirst, loadPauses[0], loadPauses[1]))
	s.simulator.ScriptDefault(life(step(0, "pending")))
	for n := range loadOrders {
		s.addOrder(fmt.Sprintf("load%d", n), account, int64(refunds/loadOrders*loadAmount), int64(refunds/loadOrders))
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
	pace := time.NewTicker(loadPace)
	defer pace.Stop()
	for n := range refunds {
		s.refunds = append(s.refunds, s.number(n))
		numbers <- n
		<-pace.C
	}
	close(numbers)
	asking.Wait()
	accepted := time.Since(began)
	count := func(where string) int {
		return value[int](s.stage, `SELECT count(*) FROM reclaim.refunds WHERE tenant_id = $1 AND `+where, s.tenant)
	}
	within(t, s.patience, "all are pending", func() bool { return count("state = 'pending'") == refunds })
	pending := time.Now()
	within(t, s.patience, "all were looked up again and again", func() bool {
		return time.Since(pending) > watched && count(fmt.Sprintf("look_count >= %d", looks)) == refunds
	})
	inFlight, _, _ := worker.memory()
	told := time.Now()
	for _, id := range s.refunds {
		s.simulator.Script(id, life(step(0, "succeeded")))
	}
	within(t, s.patience, "all are confirmed", func() bool { return count("state = 'succeeded'") == refunds })
	confirmed := time.Since(told)
	for _, id := range s.refunds {
		s.refundEnds(id)
	}

	var starting, flying, ending []lateness
	for _, one := range front.latenesses(s) {
		switch {
		case one.at.Before(pending):
			starting = append(starting, one)
		case one.at.Before(told):
			flying = append(flying, one)
		default:
			ending = append(ending, one)
		}
	}
	t.Logf("%d refunds accepted in %s, answers after %s, at most %d requests at once; all confirmed %s after the channel had "+
		"sent the money", refunds, accepted.Round(time.Millisecond), loadAnswer, front.busiest, confirmed.Round(time.Millisecond))
	words, _ := punctuality(starting)
	t.Logf("while they were being accepted: %s", words)
	words, tooLate := punctuality(flying)
	t.Logf("with all in flight for %s: %s", told.Sub(pending).Round(time.Millisecond), words)
	assert.LessOrEqual(t, tooLate*1000, len(flying)*loadLate, "look-ups came too late")
	words, _ = punctuality(ending)
	t.Logf("while they were being confirmed: %s", words)
	events := len(s.historyOf(contract.RefundWorkflowID(s.tenant, s.number(0)), ""))
	t.Logf("events in a history: %d", events)
	if _, most, ok := worker.memory(); ok {
		t.Logf("the worker process held %d MB when idle, %d MB with all in flight, %d MB at most", idle, inFlight, most)
		assert.Less(t, most, loadMegabytes)
	}
	for n := range loadOrders {
		assert.EqualValues(t, refunds/loadOrders*loadAmount, value[int64](s.stage,
			`SELECT refunded FROM reclaim.orders WHERE tenant_id = $1 AND order_id = $2`, s.tenant, fmt.Sprintf("load%d", n)))
	}
	sends := 0
	for _, n := range s.simulator.Book().Sends {
		sends += n
	}
	assert.Equal(t, refunds, sends, "each was sent once")
}
