package webui_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema"
	reclaim "github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/worker/devstack"
	"github.com/reclaimhq/reclaim/worker/render"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

const (
	tenant = "acme"
	// studio has credits enough; the other accounts have what their story needs.
	studio = "studio"
	cost   = 40
	// outage is the file that stops the example work from rendering.
	outage = "studio-down"
)

// stage is the whole local stack with its Web UI.
type stage struct {
	t *testing.T
	*devstack.Stack
	client *reclaim.Client
}

func startStage(t *testing.T) *stage {
	t.Helper()
	program := filepath.Join(t.TempDir(), "worker")
	said, err := exec.Command("go", "build", "-o", program, "github.com/reclaimhq/reclaim/worker").CombinedOutput()
	require.NoError(t, err, "%s", said)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	stack, err := devstack.Start(ctx, devstack.Options{Program: program, Progress: func(line string) { t.Log(line) }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stack.Close()) })
	store, err := schema.Open(ctx, stack.AppURL(), schema.Options{Name: "reclaim-webui-test"})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	s := &stage{t: t, Stack: stack, client: reclaim.New(stack.Temporal(), store, "")}
	s.topUp(studio, 1000)
	return s
}

func (s *stage) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	s.t.Cleanup(cancel)
	return ctx
}

func (s *stage) topUp(account string, amount int64) {
	s.t.Helper()
	_, err := s.client.TopUp(s.ctx(), reclaim.Movement{
		Tenant: tenant, Actor: "shop", Account: account, Key: account + time.Now().Format(time.RFC3339Nano), Amount: amount,
	})
	require.NoError(s.t, err)
}

// job describes a small picture of the example work, which change makes misbehave.
func (s *stage) job(id, account string, change func(*render.Input, *contract.Job)) contract.Job {
	s.t.Helper()
	in := render.Input{Width: 320, Height: 200, CenterX: -0.743, CenterY: 0.127, Scale: 0.02, MaxIterations: 200}
	job := contract.Job{
		Tenant: tenant, JobID: id, Account: account, Cost: cost, Actor: "api:shop",
		Work: contract.Work{
			Activity: render.ActivityName, Probe: render.ProbeName, TaskQueue: devstack.WorkQueue,
			Timeout: contract.Duration(10 * time.Minute), Heartbeat: contract.Duration(10 * time.Second),
		},
		Promise: contract.Duration(5 * time.Minute), Summary: "fractal of 320 × 200 pixels",
	}
	if change != nil {
		change(&in, &job)
	}
	var err error
	job.Work.Input, err = json.Marshal(in)
	require.NoError(s.t, err)
	return job
}

func (s *stage) submit(job contract.Job, want contract.Verdict) {
	s.t.Helper()
	verdict, err := s.client.StartJob(s.ctx(), job)
	require.NoError(s.t, err)
	require.Equal(s.t, want, verdict.Verdict, verdict.Reason)
}

// order lets a customer of an account pay and buy credits.
func (s *stage) order(id, account, channel string, paid, credits int64) {
	s.t.Helper()
	require.NoError(s.t, s.Simulator().Pay(s.ctx(), "pi_"+id, paid))
	_, err := s.client.AddOrder(s.ctx(), contract.Order{
		Tenant: tenant, OrderID: id, Account: account, Channel: channel, Payment: "pi_" + id, Currency: "eur",
		Paid: paid, Credits: credits, Actor: "shop", Key: id,
	})
	require.NoError(s.t, err)
}

// refund asks for 500 cents of an order of 2000, which the channel treats by the script.
func (s *stage) refund(order, channel string, script map[string]any) (number string) {
	s.t.Helper()
	s.order(order, "shopper", channel, 2000, 200)
	number = contract.RefundNumber(tenant, "shop", order)
	require.NoError(s.t, s.Simulator().Script(s.ctx(), number, script))
	_, err := s.client.RequestRefund(s.ctx(), contract.RefundRequest{
		Tenant: tenant, Actor: "shop", Key: order, OrderID: order, Amount: 500, Reason: "the customer returned it",
	})
	require.NoError(s.t, err)
	return number
}

// reaches waits until something is so.
func (s *stage) reaches(what string, holds func() bool) {
	s.t.Helper()
	require.Eventually(s.t, holds, patience, looks, what)
}

func (s *stage) jobReaches(id string, state contract.JobState) {
	s.t.Helper()
	s.reaches("job "+id+" is "+string(state), func() bool {
		job, err := s.client.Job(s.ctx(), tenant, id)
		return err == nil && job.State == state
	})
}

func (s *stage) refundReaches(number string, holds func(reclaim.Refund) bool) {
	s.t.Helper()
	s.reaches("refund "+number, func() bool {
		refund, err := s.client.Refund(s.ctx(), tenant, number)
		require.NoError(s.t, err)
		return holds(refund)
	})
}

// workIsInHand waits until a worker does the job.
func (s *stage) workIsInHand(job contract.Job) {
	s.t.Helper()
	s.reaches("the work of "+job.JobID+" runs", func() bool {
		run, err := s.Temporal().DescribeWorkflow(s.ctx(), job.WorkflowID(), "")
		require.NoError(s.t, err)
		pending := run.RawResponse.GetPendingActivities()
		return len(pending) == 1 && pending[0].GetLastStartedTime() != nil
	})
}

// breakStudio stops the example work, and mendStudio lets it go on.
func (s *stage) breakStudio() {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(filepath.Join(s.Results(), outage), nil, 0o644))
}

func (s *stage) mendStudio() {
	s.t.Helper()
	require.NoError(s.t, os.Remove(filepath.Join(s.Results(), outage)))
}
