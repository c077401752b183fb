// Package histories records the workflow histories that workflows/replay_test.go replays.
package histories

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/activity"
	temporalclient "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/worker/localstack"
	"github.com/reclaimhq/reclaim/worker/runs"
	"github.com/reclaimhq/reclaim/workflows"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func TestMain(m *testing.M) { os.Exit(schematest.Run(m)) }

// destination is where the histories are kept, one file a story, below a folder for the ladder's number.
const destination = "../../workflows/testdata/histories/1"

const (
	tenant  = "acme"
	account = "team-7"
	queue   = "studio"
)

// script is the work's input: how it behaves in its attempts.
type script struct {
	// Slow makes an attempt take that long, FailFirst makes the first attempts fail, Fatal says never.
	Slow      contract.Duration `json:"slow,omitzero"`
	FailFirst int32             `json:"failFirst,omitempty"`
	Fatal     bool              `json:"fatal,omitempty"`
	// Gate keeps the attempt until the recorder opens it.
	Gate bool `json:"gate,omitempty"`
}

// studio is the work worker of the stories.
type studio struct {
	gate  chan struct{}
	calls atomic.Int32
	probe atomic.Value
}

func (s *studio) work(ctx context.Context, in script, meta contract.WorkMeta) (string, error) {
	s.calls.Add(1)
	if in.Fatal {
		return "", temporal.NewNonRetryableApplicationError("the scene has no camera", "BadScene", nil)
	}
	if int32(meta.Attempt) <= in.FailFirst {
		return "", errors.New("the GPU is on fire")
	}
	wait := time.After(in.Slow.Std())
	for {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(200 * time.Millisecond):
			activity.RecordHeartbeat(ctx)
			continue
		case <-wait:
		}
		break
	}
	if in.Gate {
		select {
		case <-s.gate:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return "render.png", nil
}

func (s *studio) look(context.Context, contract.WorkMeta) (contract.ProbeAnswer, error) {
	if answer, ok := s.probe.Load().(contract.ProbeAnswer); ok {
		return answer, nil
	}
	return contract.ProbeAnswer{State: contract.ProbeUnknown}, nil
}

// stage is the running system of one story.
type stage struct {
	t        *testing.T
	ctx      context.Context
	temporal temporalclient.Client
	client   *client.Client
	studio   *studio
	id       string
}

func (s *stage) job(in script) contract.Job {
	raw, err := json.Marshal(in)
	require.NoError(s.t, err)
	return contract.Job{
		Tenant: tenant, JobID: s.id, Account: account, Cost: 40, Actor: "api:checkout", Promise: contract.Duration(time.Minute),
		Work: contract.Work{
			Activity: "Work", TaskQueue: queue, Input: raw, Timeout: contract.Duration(time.Minute),
			Heartbeat: contract.Duration(5 * time.Second),
		},
		Retry: contract.Retrying{MaxAttempts: 2},
	}
}

func (s *stage) start(job contract.Job) contract.ChargeVerdict {
	verdict, err := s.client.StartJob(s.ctx, job)
	require.NoError(s.t, err)
	return verdict
}

// until waits for the job to be in the state, refunded or not.
func (s *stage) until(state contract.JobState, refunded bool) {
	require.Eventually(s.t, func() bool {
		status, err := s.client.Status(s.ctx, tenant, s.id)
		return err == nil && status.State == state && (status.Refunded > 0) == refunded
	}, 2*time.Minute, 20*time.Millisecond)
}

// working waits until the work was called that often.
func (s *stage) working(calls int32) {
	require.Eventually(s.t, func() bool { return s.studio.calls.Load() == calls }, 2*time.Minute, 5*time.Millisecond)
}

func (s *stage) resolve(decision contract.Resolution) {
	decision.Operator = "ann"
	_, err := s.client.Resolve(s.ctx, tenant, s.id, decision)
	require.NoError(s.t, err)
}

// stories are what is recorded: each leaves the job in the state that it names.
var stories = map[string]struct {
	end contract.JobState
	run func(*stage)
}{
	"on_time": {contract.StateSucceeded, func(s *stage) { s.start(s.job(script{})) }},
	"late_success": {contract.StateSucceeded, func(s *stage) {
		job := s.job(script{Slow: contract.Duration(2500 * time.Millisecond)})
		job.Promise = contract.Duration(time.Second)
		s.start(job)
	}},
	"failed_then_succeeded": {contract.StateSucceeded, func(s *stage) { s.start(s.job(script{FailFirst: 1})) }},
	"never_succeeds":        {contract.StateFailed, func(s *stage) { s.start(s.job(script{Fatal: true})) }},
	"dead_letter_then_retry": {contract.StateSucceeded, func(s *stage) {
		s.start(s.job(script{FailFirst: 2}))
		s.until(contract.StateDeadLetter, true)
		s.resolve(contract.Resolution{ID: "r-1", Action: contract.ActionRetry, Reason: "the GPU was replaced"})
	}},
	"resolved_by_a_person": {contract.StateSucceeded, func(s *stage) {
		s.start(s.job(script{FailFirst: 9}))
		s.until(contract.StateDeadLetter, true)
		require.NoError(s.t, s.temporal.SignalWorkflow(s.ctx, contract.JobWorkflowID(tenant, s.id), "", contract.ResolveMessage,
			map[string]string{"id": "r-0", "action": "shrug", "operator": "ann", "reason": "why not"}))
		s.resolve(contract.Resolution{
			ID: "r-1", Action: contract.ActionDeliver, Reason: "rendered by hand", Evidence: "file 8841.png in the customer's folder",
		})
	}},
	"declined": {contract.StateDeclined, func(s *stage) {
		job := s.job(script{})
		job.Cost = contract.MaxCost
		require.Equal(s.t, contract.VerdictDeclined, s.start(job).Verdict)
	}},
	"canceled": {contract.StateCanceled, func(s *stage) {
		s.start(s.job(script{Gate: true}))
		s.working(1)
		require.NoError(s.t, s.client.Cancel(s.ctx, tenant, s.id))
	}},
	"taken_up_after_terminate": {contract.StateSucceeded, func(s *stage) {
		job := s.job(script{Gate: true})
		job.Work.Probe = "Look"
		s.start(job)
		s.working(1)
		require.NoError(s.t, s.temporal.TerminateWorkflow(s.ctx, job.WorkflowID(), "", "recording"))
		require.Equal(s.t, contract.VerdictAlready, s.start(job).Verdict)
		s.working(2)
		close(s.studio.gate)
	}},
	"probe_finds_it": {contract.StateSucceeded, func(s *stage) {
		job := s.job(script{Gate: true})
		job.Work.Probe, job.Work.Timeout = "Look", contract.Duration(time.Second)
		s.studio.probe.Store(contract.ProbeAnswer{State: contract.ProbeSucceeded, Output: json.RawMessage(`"found.png"`)})
		s.start(job)
	}},
	"outcome_reported": {contract.StateSucceeded, func(s *stage) {
		s.start(s.job(script{Gate: true}))
		s.working(1)
		for _, outcome := range []contract.Outcome{
			{Attempt: 7, State: contract.OutcomeFailed, Error: "not this one", Source: "webhook"},
			{Attempt: 1, State: contract.OutcomeSucceeded, Output: json.RawMessage(`"sent.png"`), Source: "webhook"},
		} {
			require.NoError(s.t, s.client.ReportOutcome(s.ctx, tenant, s.id, outcome))
		}
	}},
	"written_off_while_running": {contract.StateWrittenOff, func(s *stage) {
		s.start(s.job(script{Gate: true}))
		s.working(1)
		s.resolve(contract.Resolution{ID: "r-1", Action: contract.ActionWriteOff, Reason: "the customer left"})
	}},
}

// server is a Temporal server with a database beside it.
type server struct {
	temporal temporalclient.Client
	store    *schema.Store
	client   *client.Client
}

func start(t *testing.T) *server {
	t.Helper()
	if os.Getenv("RECLAIM_RECORD_HISTORIES") == "" {
		t.Skip("this writes the recorded histories anew: run it with `make histories`")
	}
	ctx := t.Context()
	attributes := map[string]string{}
	for _, name := range contract.SearchAttributes() {
		attributes[name] = "Keyword"
	}
	running, err := localstack.StartTemporal(ctx, localstack.TemporalOptions{Headless: true, SearchAttributes: attributes})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, running.Close()) })
	store, err := schema.Open(ctx, schematest.New(t).AppURL, schema.Options{})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	connection, err := temporalclient.Dial(temporalclient.Options{HostPort: running.Address(), Identity: "recorder"})
	require.NoError(t, err)
	t.Cleanup(connection.Close)
	s := &server{connection, store, client.New(connection, store, "")}
	_, err = s.client.TopUp(ctx, client.Movement{Tenant: tenant, Actor: "recorder", Account: account, Key: "1", Amount: 10_000})
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(destination, 0o755))
	return s
}

// decide runs Reclaim's workflows and activities until the test's end.
func (s *server) decide(t *testing.T, channels channel.Set) {
	t.Helper()
	decider := worker.New(s.temporal, contract.TaskQueue, worker.Options{Identity: "recorder"})
	workflows.Register(decider)
	refunds := activities.NewRefunds(s.store, channels)
	workflows.RegisterActivities(decider, activities.NewJobs(s.store), refunds)
	workflows.RegisterReconciler(decider, activities.NewReconciler(s.store, channels, refunds, runs.New(s.client, s.temporal, ""),
		runs.Ledger{Client: s.client}, func(string, contract.FindingEffect) {}))
	require.NoError(t, decider.Start())
	t.Cleanup(decider.Stop)
}

func TestRecord(t *testing.T) {
	server := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	connection, reclaim := server.temporal, server.client
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			s := &stage{t: t, ctx: ctx, temporal: connection, client: reclaim, studio: &studio{gate: make(chan struct{})}, id: name}
			server.decide(t, channel.NewSet(nil))
			crew := worker.New(connection, queue, worker.Options{Identity: "recorder"})
			crew.RegisterActivityWithOptions(s.studio.work, activity.RegisterOptions{Name: "Work"})
			crew.RegisterActivityWithOptions(s.studio.look, activity.RegisterOptions{Name: "Look"})
			require.NoError(t, crew.Start())
			defer crew.Stop()
			story.run(s)
			result, err := reclaim.AwaitJob(ctx, tenant, name)
			require.NoError(t, err)
			require.Equal(t, story.end, result.State)
			save(t, connection, contract.JobWorkflowID(tenant, name), name)
		})
	}
}

func save(t *testing.T, temporal temporalclient.Client, workflowID, name string) {
	var history historypb.History
	events := temporal.GetWorkflowHistory(t.Context(), workflowID, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(t, err)
		history.Events = append(history.Events, event)
	}
	text, err := temporalproto.CustomJSONMarshalOptions{Indent: " "}.Marshal(&history)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(destination, name+".json"), append(text, '\n'), 0o644))
}
