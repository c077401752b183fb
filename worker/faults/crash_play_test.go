package faults_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
	"github.com/reclaimhq/reclaim/worker/localstack"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// pair is a Postgres and a Temporal server with worlds on them, each of a database of its own, and a worker that does
// scored work.
type pair struct {
	postgres *localstack.Postgres
	temporal *localstack.Temporal
	studio   studio
	queue    string
	worlds   chan *world
}

// startPair starts the servers, Temporal's data on disk or not. Of the worlds, as many as said can be used at once.
func startPair(t *testing.T, worlds int, persistent bool) *pair {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	p := &pair{queue: "scored", studio: studio(t.TempDir()), worlds: make(chan *world, worlds)}
	var err error
	p.postgres, err = localstack.StartPostgres(ctx, localstack.PostgresOptions{MaxConnections: 1000})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.postgres.Close()) })
	p.temporal, err = startTemporal(ctx, localstack.TemporalOptions{Persistent: persistent, Unsynced: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.temporal.Close()) })
	stop, err := p.studio.startPerformer(p.temporal.Address(), p.queue)
	require.NoError(t, err)
	t.Cleanup(stop)
	for range worlds {
		p.worlds <- nil
	}
	return p
}

// take waits for a world that nobody uses, and gives it back when the test ends.
func (p *pair) take(t *testing.T) *world {
	t.Helper()
	w := <-p.worlds
	if w == nil {
		w = newWorld(t, p.temporal.Address(), schematest.NewOn(t, p.postgres.SuperuserURL("postgres")), "crash")
		w.elsewhere = true
	}
	t.Cleanup(func() {
		// What a failed playing leaves in the outbox would be carried out in the next one.
		if t.Failed() {
			w.close()
			w = nil
		}
		p.worlds <- w
	})
	return w
}

// play is one playing of a story: a tenant, alone in its world, whose runs are carried by a worker process that reaches
// Postgres through a proxy.
type play struct {
	*refundStage
	proxy  *schematest.LossyProxy
	studio studio
	// work is the queue of the work.
	work string
	// notices is where the worker takes the channel's notices.
	notices string
	worker  *child
	// performer does the work where it is a process of this playing's own.
	performer *child
	door      *gateway
	// answers go wrong before what the story itself has gone wrong.
	answers simulator.Script
	// lenient playings may end otherwise, since an attempt of the work was lost.
	lenient bool

	// beside are the crashes, which end with the story at the latest.
	beside  sync.WaitGroup
	telling context.Context
	told    context.CancelFunc
	struck  atomic.Int32
	// asked says that the refund's number is known.
	asked atomic.Bool
}

// newPlay sets the scene: all is up when it returns.
func newPlay(t *testing.T, servers *pair) *play {
	t.Helper()
	s := servers.take(t).stage(t, "")
	s.queue = "reclaim-" + s.tenant
	s.client = s.asker(s.queue)
	s.patience = 4 * time.Minute
	p := &play{
		refundStage: s.withChannel("first_query = \"1s\"\npoll = [\"1s\"]\n"),
		proxy:       schematest.NewLossyProxy(t, s.database.Address), studio: servers.studio, work: servers.queue,
		notices: freeAddress(t),
	}
	p.simulator.SetWebhookURL(p.noticesURL("http://" + p.notices))
	p.telling, p.told = context.WithCancel(context.Background())
	p.startWorkerProcess()
	t.Cleanup(p.end)
	return p
}

func (p *play) startWorkerProcess() {
	p.worker = p.startChild(p.proxy.URL(p.database.AppURL), p.environment("RECLAIM_LISTEN="+p.notices)...)
}

// killWorker kills the worker and starts another.
func (p *play) killWorker() {
	p.worker.kill()
	p.struck.Add(1)
	p.startWorkerProcess()
}

// performApart has the work done by a process of this playing's own.
func (p *play) performApart() {
	p.work, p.lenient = "scored-"+p.tenant, true
	p.performer = p.startPerforming(p.work, p.studio)
}

func (p *play) killPerformer() {
	p.performer.kill()
	p.struck.Add(1)
	p.performer = p.startPerforming(p.work, p.studio)
}

// openGateway opens the HTTP door in front of this playing.
func (p *play) openGateway() {
	p.door = p.newGateway("test")
	p.door.child = p.startGateway(p.door)
}

func (p *play) killGateway() {
	p.door.kill()
	p.struck.Add(1)
	p.door.child = p.startGateway(p.door)
}

// strike lets something break beside the story. It is called off when the story has ended.
func (p *play) strike(breaks func(context.Context)) { p.beside.Go(func() { breaks(p.telling) }) }

// end calls off what has not broken yet, and waits for what is under way.
func (p *play) end() {
	p.told()
	p.beside.Wait()
}

// waitFor waits until the condition holds, which is no part of the story; false means that the story ended before.
func waitFor(ctx context.Context, holds func() bool) bool {
	for !holds() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(5 * time.Millisecond):
		}
	}
	return true
}

// until tries until it holds. Whatever goes wrong meanwhile may be because something was killed.
func (p *play) until(what string, holds func(context.Context) (bool, error)) {
	p.t.Helper()
	const attempt, pause = 30 * time.Second, 50 * time.Millisecond
	var last error
	for deadline := time.Now().Add(p.patience); ; <-time.After(pause) {
		ctx, cancel := context.WithTimeout(context.Background(), attempt)
		held, err := holds(ctx)
		cancel()
		switch {
		case err == nil && held:
			return
		case time.Now().After(deadline):
			p.t.Fatalf("did not happen within %s: %s (%v)", p.patience, what, errors.Join(err, last))
		case err != nil:
			last = err
		}
	}
}

// insist asks until there is an answer. Only what was refused for good is an error.
func (p *play) insist(what string, ask func(context.Context) error) {
	p.t.Helper()
	p.until(what, func(ctx context.Context) (bool, error) {
		err := ask(ctx)
		if code := contract.CodeOf(err); err != nil && code != "" && code != contract.CodeUnavailable {
			p.t.Fatalf("%s: %v", what, err)
		}
		return err == nil, err
	})
}

// sees waits until Postgres says yes to the question about this tenant ($1).
func (p *play) sees(what, question string, args ...any) {
	p.t.Helper()
	p.until(what, func(ctx context.Context) (yes bool, err error) {
		err = p.direct.QueryRow(ctx, "SELECT coalesce(("+question+"), false)", append([]any{p.tenant}, args...)...).Scan(&yes)
		return yes, err
	})
}

func (p *play) seesJob(what, condition string) {
	p.t.Helper()
	p.sees("the job is "+what, "SELECT "+condition+" FROM reclaim.jobs WHERE tenant_id = $1 AND job_id = 'j1'")
}

// seesRefund waits until the refund has been in one of the states.
func (p *play) seesRefund(refundID string, states ...contract.RefundState) {
	p.t.Helper()
	p.sees(fmt.Sprintf("the refund has been %v", states), `SELECT bool_or(to_state = ANY ($3)) FROM reclaim.refund_events
		WHERE tenant_id = $1 AND refund_id = $2`, refundID, states)
}

// job1 is the job of the story.
func (p *play) job1(turns []turn, change ...func(*contract.Job)) contract.Job {
	job := p.job("j1", append([]func(*contract.Job){scored(p.t, p.work, turns...)}, change...)...)
	p.jobs = []string{"j1"} // once, however often it is submitted
	return job
}

func (p *play) submit(job contract.Job) (verdict contract.ChargeVerdict) {
	p.t.Helper()
	p.insist("the job is submitted", func(ctx context.Context) (err error) {
		verdict, err = p.client.StartJob(ctx, job)
		return err
	})
	return verdict
}

// begins submits the job, which must be charged.
func (p *play) begins(job contract.Job) {
	p.t.Helper()
	assert.NotEqual(p.t, contract.VerdictDeclined, p.submit(job).Verdict)
}

// letGo lets the job's waiting work go on.
func (p *play) letGo() {
	p.t.Helper()
	require.NoError(p.t, touch(p.studio.letGo(p.tenant, "j1")))
}

// decideJob takes a person's decision to the job.
func (p *play) decideJob(d contract.Resolution) {
	p.t.Helper()
	p.insist("the decision is answered", func(ctx context.Context) error {
		answer, err := p.client.Resolve(ctx, p.tenant, "j1", d)
		if err == nil {
			assert.Equal(p.t, contract.ResolutionApplied, answer.Outcome)
		}
		return err
	})
}

// terminateRun ends the job's run as an operator does in the Web UI.
func (p *play) terminateRun() {
	p.t.Helper()
	p.until("the run is terminated", func(ctx context.Context) (bool, error) {
		err := p.temporal.TerminateWorkflow(ctx, contract.JobWorkflowID(p.tenant, "j1"), "", "test")
		if _, over := errors.AsType[*serviceerror.NotFound](err); over {
			return true, nil
		}
		return err == nil, err
	})
}

// channelWill says how the channel treats a refund, after what the crash has it do.
func (p *play) channelWill(refundID string, script simulator.Script) {
	p.takeOn(refundID)
	p.asked.Store(true)
	script.Create = append(slices.Clone(p.answers.Create), script.Create...)
	script.Lookup = append(slices.Clone(p.answers.Lookup), script.Lookup...)
	p.simulator.Script(refundID, script)
}

// refunds1 asks for a refund of order o1, which the channel treats as the script says.
func (p *play) refunds1(script simulator.Script) string {
	p.t.Helper()
	id := p.number(0)
	p.channelWill(id, script)
	p.insist("the refund is asked for", func(ctx context.Context) error {
		_, err := p.client.RequestRefund(ctx, p.request(0, 6000))
		return err
	})
	return id
}

// toSource1 is the job of the story whose refund leaves through order o2, with the refund's id.
func (p *play) toSource1(script simulator.Script, turns []turn, change ...func(*contract.Job)) (contract.Job, string) {
	p.t.Helper()
	id := contract.JobRefundNumber(p.tenant, "j1")
	p.channelWill(id, script)
	require.NoError(p.t, p.simulator.AddPayment(simulator.Payment{Intent: payment(sourceOrder), Amount: sourcePaid, Currency: currency}))
	p.insist("the order is added", func(ctx context.Context) error {
		_, err := p.client.AddOrder(ctx, contract.Order{
			Tenant: p.tenant, OrderID: sourceOrder, Account: sourceAccount, Channel: p.channel, Payment: payment(sourceOrder),
			Currency: currency, Paid: sourcePaid, Credits: cost, Actor: "test", Key: "order " + sourceOrder,
		})
		return err
	})
	return p.job1(turns, append([]func(*contract.Job){toSource}, change...)...), id
}

// jobEnds waits until the job's row is in the state, with these entries.
func (p *play) jobEnds(state contract.JobState, entries string) {
	p.t.Helper()
	p.sees("the job is "+string(state), "SELECT state = $2 FROM reclaim.jobs WHERE tenant_id = $1 AND job_id = 'j1'", string(state))
	p.sees("its entries are "+entries, `SELECT string_agg(type, ' ' ORDER BY seq) = ANY ($2) FROM reclaim.ledger_entries
		WHERE tenant_id = $1 AND job_id = 'j1'`, p.orAfterALoss(entries))
}

// orAfterALoss adds how the entries may be where an attempt of the work was lost: what was lost did not fail.
func (p *play) orAfterALoss(entries string) []string {
	if p.lenient && entries == "charge refund reclaim" {
		return []string{entries, "charge"}
	}
	return []string{entries}
}

// refundEnded waits until the refund's row is in the state, with these entries.
func (p *play) refundEnded(refundID string, state contract.RefundState, entries string) {
	p.t.Helper()
	p.sees("the refund is "+string(state), "SELECT state = $3 FROM reclaim.refunds WHERE tenant_id = $1 AND refund_id = $2",
		refundID, string(state))
	p.sees("its entries are "+entries, `SELECT string_agg(type, ' ' ORDER BY seq) = $3 FROM reclaim.ledger_entries
		WHERE tenant_id = $1 AND refund_id = $2`, refundID, entries)
}

// isQuiet waits until no run of the tenant is open and nothing waits in the outbox.
func (p *play) isQuiet() {
	p.t.Helper()
	p.sees("the outbox is empty", "SELECT count(*) = 0 FROM reclaim.outbox WHERE delivered_at IS NULL AND $1 <> ''")
	p.until("no run is open", func(ctx context.Context) (bool, error) {
		open, err := p.temporal.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{
			Query: fmt.Sprintf("ReclaimTenant = '%s' AND ExecutionStatus = 'Running'", p.tenant),
		})
		return open.GetCount() == 0, err
	})
}

// owes waits until the account and the order of the source hold this: Postgres may be away once more.
func (p *play) owes(balance int64, source capacity) {
	p.t.Helper()
	p.holds(sourceAccount, balance)
	p.sees(fmt.Sprintf("the order's money is %+v", source), `SELECT (reserved, refunded) = ($3, $4) FROM reclaim.orders
		WHERE tenant_id = $1 AND order_id = $2`, sourceOrder, source.reserved, source.refunded)
}

// holds waits until the account has the balance.
func (p *play) holds(account string, balance int64) {
	p.t.Helper()
	p.sees(fmt.Sprintf("account %s holds %d", account, balance), `SELECT balance = $3 FROM reclaim.accounts
		WHERE tenant_id = $1 AND account_id = $2`, account, balance)
}

// asks posts to the door until there is an answer, as the door's errors say.
func (p *play) asks(path, key string, body any) {
	p.t.Helper()
	text, err := json.Marshal(body)
	require.NoError(p.t, err)
	p.until("POST "+path+" is answered", func(ctx context.Context) (bool, error) {
		_, _, err := p.door.post(ctx, path, key, text)
		if _, refused := errors.AsType[*api.Problem](err); refused {
			p.t.Fatalf("POST %s: %v", path, err)
		}
		return err == nil, err
	})
}

// begun says whether an attempt of the work has begun.
func (p *play) begun(attempt int) bool { return exists(p.studio.begun(p.tenant, "j1", attempt)) }

// probed says whether it was asked what became of an attempt.
func (p *play) probed() bool { return exists(p.studio.probed(p.tenant, "j1")) }

// made says whether a result of the work is kept.
func (p *play) made() bool {
	kept, err := p.studio.results(p.tenant, "j1")
	require.NoError(p.t, err)
	return kept > 0
}
