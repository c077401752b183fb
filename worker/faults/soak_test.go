package faults_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/starter/api"
	reclaim "github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

const (
	// soakBound is how long a soak may take in all.
	soakBound = 20 * time.Minute
	// soakOpen is how many jobs may be open before the next is begun: more would only wait for the servers.
	soakOpen = 250
	// soakAsking is how many ask at once.
	soakAsking = 40
	// rightClocks is how many of the workers have a right clock.
	rightClocks = 2
)

// soak is thousands of jobs and refunds, and everything that can happen to them at once.
type soak struct {
	*refundStage
	servers *pair
	studio  studio
	work    string
	seed    uint64
	ctx     context.Context

	plans []*plan
	// refusedFor are the refunds that the channel refuses.
	refusedFor map[string]bool
	workers    []*mortal
	performers []*mortal
	// door is where some of them are asked for, and gateway what is behind it.
	door    *gateway
	gateway *mortal
	asked   atomic.Int64
	open    atomic.Int64
	// afterwards is what happens to jobs some time after they were asked for.
	afterwards sync.WaitGroup

	mu    sync.Mutex
	tally map[string]int
	// wrong are what was refused though it should not have been, by the plan's number.
	wrong map[int]string
}

// mortal is a process that is killed and started again.
type mortal struct {
	mu    sync.Mutex
	proxy *schematest.LossyProxy
	// door is where a worker takes notices.
	door  string
	start func() *child
	child *child
}

// kill kills the process, and starts it again after a while.
func (m *mortal) kill(away time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.child.kill()
	stays(away)
	m.child = m.start()
}

func (s *soak) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally[what]++
}

func (s *soak) blame(p *plan, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.wrong[p.n]; !known {
		s.wrong[p.n] = p.kind + ": " + fmt.Sprintf(format, args...)
	}
}

// keeps asks until there is an answer, of whatever kind. It returns a refusal.
func (s *soak) keeps(ask func(context.Context) error) error {
	for {
		ctx, cancel := context.WithTimeout(s.ctx, 30*time.Second)
		err := ask(ctx)
		cancel()
		if code := contract.CodeOf(err); err == nil || code != "" && code != contract.CodeUnavailable {
			return err
		}
		select {
		case <-s.ctx.Done():
			return fmt.Errorf("the soak's time is over: %w", err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (s *soak) terminateAnyRun(ctx context.Context, jobID string) error {
	err := s.temporal.TerminateWorkflow(ctx, contract.JobWorkflowID(s.tenant, jobID), "", "soak")
	if _, over := errors.AsType[*serviceerror.NotFound](err); over {
		return nil
	}
	return err
}

// soakWorker is a worker that loses one reply in a hundred, whose clock may be wrong.
func (s *soak) soakWorker(n int, r *rand.Rand, shifted bool) *mortal {
	m := &mortal{proxy: schematest.NewLossyProxy(s.t, s.database.Address), door: freeAddress(s.t)}
	m.proxy.LoseRandomly(r, 0.01, func(sql string) bool { return slices.Contains(workerWrites, nameOf(sql)) })
	clocks := rand.New(rand.NewPCG(s.seed, 1<<40+uint64(n)))
	m.start = func() *child {
		program, environment := workerBinary(s.t), s.environment("RECLAIM_LISTEN="+m.door, "RECLAIM_CONNECTIONS=8")
		if shifted {
			program = shiftedWorker(s.t)
			// Up to five minutes wrong, and after a while wrong in another way.
			shift := func() int64 { return clocks.Int64N(601) - 300 }
			environment = append(environment, fmt.Sprintf("%s=%d %d %d", clockEnv, shift(), 5+clocks.Int64N(20), shift()))
			s.count("clock shifts")
		}
		return s.startProgram(exec.Command(program, "run"), `"polling"`, m.proxy.URL(s.database.AppURL), environment...)
	}
	m.child = m.start()
	return m
}

// takeNotices hands webhooks to the workers' doors, the first that is open.
func (s *soak) takeNotices() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, worker := range s.workers[:rightClocks] { // a wrong one takes good signatures for stale
			if conn, err := net.DialTimeout("tcp", worker.door, time.Second); err == nil {
				_ = conn.Close()
				door := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: worker.door})
				door.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
				door.ServeHTTP(w, r)
				return
			}
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	s.t.Cleanup(server.Close)
	s.simulator.SetWebhookURL(s.noticesURL(server.URL))
}

// ask asks for one job or refund.
func (s *soak) ask(p *plan) {
	if p.refundID != "" {
		s.simulator.Script(p.refundID, p.script)
	}
	if p.byDoor {
		s.count("asked for by HTTP")
	}
	once := func() {
		if err := s.keeps(func(ctx context.Context) error {
			switch {
			case p.byDoor:
				return s.knock(ctx, p)
			case p.job == nil:
				_, err := s.client.RequestRefund(ctx, *p.request)
				return err
			}
			verdict, err := s.client.StartJob(ctx, *p.job)
			if err == nil && (verdict.Verdict == contract.VerdictDeclined) != (p.ends == nil) {
				s.blame(p, "its charge was answered %s: %s", verdict.Verdict, verdict.Reason)
			}
			return err
		}); err != nil {
			s.blame(p, "it was refused: %v", err)
		}
	}
	var asking sync.WaitGroup
	if p.doubled {
		s.count("double submissions")
		asking.Go(once)
	}
	once()
	asking.Wait()
	if p.later == nil {
		return
	}
	s.afterwards.Go(func() {
		stays(p.after)
		// What comes too late is refused.
		if err := s.keeps(p.later); err != nil && contract.CodeOf(err) != contract.CodeBadInput {
			s.blame(p, "what happened later was refused: %v", err)
		}
		s.count(p.kind)
	})
}

// knock asks for it by HTTP. A job whose charge takes longer than the door waits is accepted meanwhile.
func (s *soak) knock(ctx context.Context, p *plan) error {
	path, key := "/v1/jobs", ""
	if p.job == nil {
		path, key = "/v1/refunds", p.request.Key
	}
	status, said, err := s.door.post(ctx, path, key, p.body)
	refused, isRefused := errors.AsType[*api.Problem](err)
	switch {
	case err == nil:
		var named struct{ JobID, RefundID string }
		if err := json.Unmarshal(said, &named); err != nil || p.job != nil && named.JobID != p.id() ||
			p.job == nil && named.RefundID != p.id() {
			s.blame(p, "the door answered with another: %d %s", status, said)
		}
		if p.job != nil && p.ends == nil && status != http.StatusAccepted {
			s.blame(p, "the door did not decline it: %d %s", status, said)
		}
		return nil
	case isRefused && refused.Code == contract.CodeInsufficientCredits && p.ends == nil:
		return nil
	case isRefused:
		return contract.NewError(refused.Code, refused.Retry, refused.Detail, nil)
	default:
		return err
	}
}

// calamity is something that breaks once so many have been asked for.
type calamity struct {
	at   int64
	what string
	do   func()
}

// calamities are decided by the seed alone.
func (s *soak) calamities() (all []calamity) {
	r := rand.New(rand.NewPCG(s.seed, 1<<50))
	total := len(s.plans)
	add := func(what string, times int, do func() func()) {
		for range times {
			all = append(all, calamity{at: int64(total/20 + r.IntN(total*9/10)), what: what, do: do()})
		}
	}
	killOne := func(among []*mortal) func() func() {
		return func() func() {
			one, away := among[r.IntN(len(among))], between(r, 0, 3*time.Second)
			return func() { one.kill(away) }
		}
	}
	add("workers killed", max(total/60, 8), killOne(s.workers))
	add("work processes killed", max(total/200, 4), killOne(s.performers))
	add("HTTP doors killed", max(total/200, 4), killOne([]*mortal{s.gateway}))
	restart := func(kill func(), restart func(context.Context) error) func() func() {
		return func() func() {
			away := between(r, 500*time.Millisecond, 4*time.Second)
			return func() {
				kill()
				stays(away)
				if err := restart(s.ctx); err != nil {
					s.t.Errorf("restart a server: %v", err)
				}
			}
		}
	}
	add("Postgres killed", 3, restart(s.servers.postgres.Kill, s.servers.postgres.Restart))
	add("Temporal killed", 3, restart(s.servers.temporal.Kill, s.servers.temporal.Restart))
	slices.SortFunc(all, func(a, b calamity) int { return int(a.at - b.at) })
	return all
}

// breakThings breaks what the seed says, when it says it, and waits until all stands again.
func (s *soak) breakThings(all []calamity) {
	var broken sync.WaitGroup
	defer broken.Wait()
	for _, one := range all {
		if !waitFor(s.ctx, func() bool { return s.asked.Load() >= one.at }) {
			return
		}
		s.count(one.what)
		broken.Go(one.do)
	}
}

// person decides, until ctx ends, what waits for a person: dead letters, and refunds that nobody confirms.
func (s *soak) person(ctx context.Context) {
	byID := map[string]*plan{}
	for _, p := range s.plans {
		byID[p.id()] = p
	}
	for turn := 0; ; turn++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		for _, jobID := range s.column(ctx, `SELECT job_id FROM reclaim.jobs WHERE tenant_id = $1 AND state = 'dead_letter'`) {
			// Each time anew: a job that is retried may become a dead letter again.
			err := s.keeps(func(ctx context.Context) error {
				_, err := s.client.Resolve(ctx, s.tenant, jobID, decision(fmt.Sprintf("r%d", turn), byID[jobID].decide))
				return err
			})
			if err == nil {
				s.count("dead letters decided")
			}
		}
		for _, line := range s.column(ctx, `SELECT refund_id || ' ' || amount FROM reclaim.refunds WHERE tenant_id = $1 AND needs_review
			AND state IN ('unknown', 'pending') AND look_until < clock_timestamp()`) {
			refundID, text, _ := strings.Cut(line, " ")
			amount, err := strconv.ParseInt(text, 10, 64)
			assert.NoError(s.t, err)
			s.decideRefund(refundID, amount, turn)
		}
	}
}

// countOpen counts, until ctx ends, the jobs that run, and prints now and then how far all is.
func (s *soak) countOpen(ctx context.Context) {
	began := time.Now()
	told := began
	for ctx.Err() == nil {
		running := s.column(ctx, `SELECT count(*)::text FROM reclaim.jobs WHERE tenant_id = $1 AND state = 'running'`)
		if len(running) == 1 {
			n, err := strconv.ParseInt(running[0], 10, 64)
			assert.NoError(s.t, err)
			s.open.Store(n)
		}
		if now := time.Now(); now.Sub(told) > 30*time.Second {
			told = now
			fmt.Printf("%s: %d of %d asked for, %d jobs running\n", time.Since(began).Round(time.Second), s.asked.Load(), len(s.plans), s.open.Load())
		}
		stays(300 * time.Millisecond)
	}
}

// decideRefund does what support does: it looks into the channel's own book, and settles or releases by it or has the refund
// looked up again.
func (s *soak) decideRefund(refundID string, amount int64, turn int) {
	d := contract.RefundResolution{ID: fmt.Sprintf("d%d", turn), Action: contract.ActionExtend}
	switch {
	case s.simulator.MovedFor(refundID) > 0 && turn%2 == 0:
		d = settled(d.ID, refundID, s.reference(refundID), amount)
	case s.simulator.Applied(refundID) == 0 && s.refusedFor[refundID]:
		// The channel has the number's refusal for ever.
		d.Action, d.Amount, d.Evidence = contract.ActionRelease, amount, "refused, says the channel's support"
	default:
		s.endIncident(refundID)
	}
	d.Operator, d.Reason = "sue", "ticket 17"
	err := s.keeps(func(ctx context.Context) error {
		_, err := s.client.ResolveRefund(ctx, s.tenant, refundID, d)
		return err
	})
	if err == nil {
		s.count("refunds decided: " + string(d.Action))
	}
}

// endIncident has the channel answer again where it would not be asked for a refund at all. A refund that it has not
// acknowledged is looked for among all of its payment, so that one that it will not be asked for hides the others.
func (s *soak) endIncident(refundID string) {
	order := s.column(s.ctx, fmt.Sprintf("SELECT order_id FROM reclaim.refunds WHERE tenant_id = $1 AND refund_id = '%s'", refundID))
	for _, p := range s.plans {
		if p.mute() && slices.Contains(order, p.orderID()) {
			s.simulator.Script(p.refundID, simulator.Script{Webhooks: p.script.Webhooks})
		}
	}
}

// column reads one column of this tenant's rows, nothing while Postgres is away.
func (s *soak) column(ctx context.Context, query string) []string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	rows, err := s.direct.Query(ctx, query, s.tenant)
	if err != nil {
		return nil
	}
	var found []string
	for rows.Next() {
		var one string
		if rows.Scan(&one) != nil {
			break
		}
		found = append(found, one)
	}
	if rows.Err() != nil {
		return nil
	}
	return found
}

// stillOpen lists what is not at its end, empty once all is quiet.
func (s *soak) stillOpen(ctx context.Context) (open []string) {
	open = s.column(ctx, `SELECT 'job ' || job_id || ' is ' || state FROM reclaim.jobs WHERE tenant_id = $1 AND state IN ('running', 'dead_letter')
		UNION ALL SELECT 'refund ' || refund_id || ' is ' || state || CASE WHEN needs_review THEN ', for a person to look at' ELSE '' END
		FROM reclaim.refunds WHERE tenant_id = $1 AND state IN ('accepted', 'unknown', 'pending')
		UNION ALL SELECT 'row ' || id || ' of the outbox waits: ' || last_error FROM reclaim.outbox WHERE delivered_at IS NULL AND $1 <> ''
		UNION ALL SELECT 'nothing' WHERE $1 <> '' ORDER BY 1`)
	if len(open) == 0 {
		return []string{"Postgres does not answer"}
	}
	open = slices.DeleteFunc(open, func(line string) bool { return line == "nothing" })
	for _, p := range s.plans {
		if p.reversed() && s.simulator.Applied(p.refundID) == 1 && s.simulator.MovedFor(p.refundID) > 0 {
			open = append(open, "the bank has yet to take refund "+p.refundID+" back")
		}
	}
	if len(open) > 0 {
		return open
	}
	runs, err := s.temporal.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{
		Query: fmt.Sprintf("ReclaimTenant = '%s' AND ExecutionStatus = 'Running'", s.tenant),
	})
	switch {
	case err != nil:
		open = []string{"Temporal does not answer: " + err.Error()}
	case runs.GetCount() > 0:
		open = []string{fmt.Sprintf("%d runs are open", runs.GetCount())}
	}
	return open
}

// waitsFor tells what a job that is still open says that it waits for.
func (s *soak) waitsFor(line string) string {
	rest, isJob := strings.CutPrefix(line, "job ")
	if !isJob {
		return ""
	}
	jobID, _, _ := strings.Cut(rest, " ")
	status, err := s.client.Status(s.stage.ctx(), s.tenant, jobID)
	if err != nil {
		return ": " + err.Error()
	}
	return ": it waits for " + status.WaitsFor
}

// judge holds every job and refund against its plan, and the channel's book.
func (s *soak) judge() {
	states := map[string]string{}
	rows, err := s.direct.Query(s.stage.ctx(), `SELECT job_id, state FROM reclaim.jobs WHERE tenant_id = $1
		UNION ALL SELECT refund_id, state FROM reclaim.refunds WHERE tenant_id = $1`, s.tenant)
	require.NoError(s.t, err)
	for rows.Next() {
		var id, state string
		require.NoError(s.t, rows.Scan(&id, &state))
		states[id] = state
	}
	require.NoError(s.t, rows.Err())
	known := map[string]bool{}
	for _, p := range s.plans {
		state, found := states[p.id()]
		known[p.id()], known[p.refundID] = true, true
		switch {
		case p.ends == nil && p.job != nil:
			if found {
				s.blame(p, "it is %s, though it was declined", state)
			}
		case !found:
			s.blame(p, "it is lost")
		case p.job != nil && !p.mayEnd(state):
			s.blame(p, "it is %s, not %v", state, p.ends)
		}
		if p.job != nil && found {
			s.count("jobs " + state)
		}
		refund, found := states[p.refundID]
		if p.refundID == "" || !found {
			continue
		}
		s.refunds = append(s.refunds, p.refundID)
		s.count("refunds " + refund)
		moved, made := s.simulator.MovedFor(p.refundID) > 0, s.simulator.Applied(p.refundID)
		if made > 1 {
			s.blame(p, "the channel made it %d times", made)
		}
		if moved != (refund == string(contract.RefundSucceeded)) {
			s.blame(p, "refund %s is %s here, and money is out at the channel: %t", p.refundID, refund, moved)
		}
	}
	for id, state := range states {
		if !known[id] {
			s.t.Errorf("%s is %s, and nobody asked for it", id, state)
		}
	}
	s.judgeWork()
}

// judgeWork looks for work that was done under two keys, though no attempt had failed for certain.
func (s *soak) judgeWork() {
	entries, err := os.ReadDir(string(s.studio))
	require.NoError(s.t, err)
	made := map[string]int{}
	for _, entry := range entries {
		if parts := strings.Split(entry.Name(), "."); parts[len(parts)-1] == "result" {
			made[parts[1]]++
		}
	}
	for _, p := range s.plans {
		if p.job != nil && (p.kind == "on time" || p.kind == "late" || p.kind == "found by the probe") && made[p.job.JobID] != 1 {
			s.blame(p, "its work was done under %d keys", made[p.job.JobID])
		}
	}
}

// tellWrong names what is wrong, and tells the first one's whole story.
func (s *soak) tellWrong() {
	for at, n := range slices.Sorted(maps.Keys(s.wrong)) {
		p := s.plans[slices.IndexFunc(s.plans, func(p *plan) bool { return p.n == n })]
		s.t.Errorf("%s: %s", p.id(), s.wrong[n])
		if at > 0 {
			continue
		}
		var moments []reclaim.Moment
		var err error
		if p.job != nil {
			moments, err = s.client.Timeline(s.stage.ctx(), s.tenant, p.job.JobID)
		} else {
			var refund reclaim.Refund
			refund, err = s.client.Refund(s.stage.ctx(), s.tenant, p.refundID)
			moments = refund.Story
		}
		if err != nil {
			s.t.Logf("its story cannot be read: %v", err)
		}
		for _, m := range moments {
			s.t.Logf("  %s %-16s %6d  %s", m.At.Format("15:04:05.000"), m.Kind, m.Amount, m.Text)
		}
		if p.job != nil {
			s.tellHistories(contract.JobWorkflowID(s.tenant, p.job.JobID))
		}
	}
}

// Whatever happens at once to thousands of jobs and refunds, nothing is lost, nothing is double, and all comes to its end.
func TestSoak(t *testing.T) {
	needsCrash(t, "make soak")
	jobs, refunds := wanted(t, "JOBS", 5000, 100), wanted(t, "REFUNDS", 1000, 10)
	seed := uint64(wanted(t, "SEED", int(rand.Uint64N(1_000_000)), 0))
	fmt.Printf("SEED=%d JOBS=%d REFUNDS=%d\n", seed, jobs, refunds)
	workerBinary(t)
	shiftedWorker(t)
	servers := startPair(t, 1, true)
	stage := servers.take(t).stage(t, "")
	stage.queue = "reclaim-" + stage.tenant
	stage.client = stage.asker(stage.queue)
	s := &soak{
		servers: servers, studio: servers.studio, work: "soaked", seed: seed, tally: map[string]int{}, wrong: map[int]string{},
		refusedFor:  map[string]bool{},
		refundStage: stage.withChannel("first_query = \"2s\"\npoll = [\"2s\", \"4s\"]\ngive_up = \"30s\"\n"),
	}
	for n := range soakAccounts {
		s.addOrder(soakOrder(n), soakAccount(n), soakPaid, soakCredits)
	}
	for n := range 4 {
		s.workers = append(s.workers, s.soakWorker(n, rand.New(rand.NewPCG(seed, 1<<60+uint64(n))), n >= rightClocks))
	}
	for range 2 {
		m := &mortal{start: func() *child { return s.startPerforming(s.work, s.studio) }}
		m.child = m.start()
		s.performers = append(s.performers, m)
	}
	s.door = s.newGateway("soak")
	s.door.proxy.LoseRandomly(rand.New(rand.NewPCG(seed, 1<<55)), 0.01, func(sql string) bool {
		return slices.Contains(gatewayWrites, nameOf(sql))
	})
	s.gateway = &mortal{start: func() *child { return s.startGateway(s.door) }}
	s.gateway.child = s.gateway.start()
	s.takeNotices()
	// The setting is no part of what is bounded: it builds two workers.
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), soakBound)
	t.Cleanup(cancel)
	s.ctx = ctx

	order := rand.New(rand.NewPCG(seed, 1<<45)).Perm(jobs + refunds)
	for _, n := range order {
		p := s.plan(n, n < jobs)
		s.plans = append(s.plans, p)
		if p.byDoor = rand.New(rand.NewPCG(seed, 1<<35+uint64(n))).IntN(4) == 0; p.byDoor {
			p.body = p.overHTTP(t)
		}
		for _, fault := range p.script.Create {
			s.refusedFor[p.refundID] = s.refusedFor[p.refundID] || fault.Kind == simulator.FaultRefuse
		}
	}
	deciding, stopDeciding := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { s.breakThings(s.calamities()) })
	var person sync.WaitGroup
	person.Go(func() { s.person(deciding) })
	person.Go(func() { s.countOpen(deciding) })
	queue := make(chan *plan)
	var asking sync.WaitGroup
	for range soakAsking {
		asking.Go(func() {
			for p := range queue {
				s.asked.Add(1)
				s.ask(p)
			}
		})
	}
	for _, p := range s.plans {
		waitFor(ctx, func() bool { return s.open.Load() < soakOpen })
		queue <- p
	}
	close(queue)
	asking.Wait()
	s.afterwards.Wait()
	asked := time.Since(began)
	beside.Wait()
	var open []string
	waitFor(ctx, func() bool {
		stays(time.Second)
		// What is asked when the time is over is not answered.
		if found := s.stillOpen(ctx); ctx.Err() == nil {
			open = found
		}
		return len(open) == 0
	})
	stopDeciding()
	person.Wait()
	took := time.Since(began)
	for _, line := range open[:min(len(open), 20)] {
		t.Errorf("not at its end after %s: %s%s", took.Round(time.Second), line, s.waitsFor(line))
	}
	s.judge()
	for _, p := range s.plans[:min(len(s.plans), 60)] {
		if p.job != nil {
			s.jobs = append(s.jobs, p.job.JobID)
		}
	}
	s.tally["replies to the door lost"] = s.door.proxy.Lost()
	for _, worker := range s.workers {
		s.tally["replies lost"] += worker.proxy.Lost()
	}
	s.summary(asked, took)
	s.tellWrong()
	assert.Empty(t, s.wrong)
}

// summary prints what happened.
func (s *soak) summary(asked, took time.Duration) {
	fmt.Printf("\nSEED=%d: asked for in %s, quiet after %s\n", s.seed, asked.Round(time.Second), took.Round(time.Second))
	for _, what := range slices.Sorted(maps.Keys(s.tally)) {
		fmt.Printf("  %-32s %6d\n", what, s.tally[what])
	}
	fmt.Printf("  %-32s %6d\n", "wrong", len(s.wrong))
}
