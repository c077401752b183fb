package faults_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	querypb "go.temporal.io/api/query/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	"github.com/reclaimhq/reclaim/workflows/contract"
	"github.com/reclaimhq/reclaim/workflows/contract/codec"
)

// keyLine is a line of a file of keys, with a key that is made from its id.
func keyLine(id string) string {
	return id + " " + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(id)[:1], 32))
}

func keysOf(t *testing.T, ids ...string) *codec.Keys {
	t.Helper()
	var lines []string
	for _, id := range ids {
		lines = append(lines, keyLine(id))
	}
	keys, err := codec.ParseKeys([]byte(strings.Join(lines, "\n")))
	require.NoError(t, err)
	return keys
}

// dialWith is dial for a client that encrypts, where there are keys.
func dialWith(t *testing.T, address string, rpcTimeout time.Duration, keys *codec.Keys) client.Client {
	t.Helper()
	options := client.Options{
		HostPort: address, RPCTimeout: rpcTimeout, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	}
	if keys != nil {
		codec.Apply(&options, keys)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := client.DialContext(ctx, options)
	require.NoError(t, err)
	return c
}

// as is the same world for a program that has these keys.
func (w *world) as(t *testing.T, keys *codec.Keys) *world {
	t.Helper()
	other := *w
	other.temporal = dialWith(t, w.address, 0, keys)
	t.Cleanup(other.temporal.Close)
	return &other
}

// newPrivateStage gives a stage in a world apart, in which whoever asks has the keys, and nobody carries anything out yet.
// Its histories are replayed with the keys that are named last.
func newPrivateStage(t *testing.T, keys, replays *codec.Keys) *stage {
	t.Helper()
	needsQuiet(t)
	t.Parallel()
	s := sharedWorld(t).apart(t).as(t, keys).stage(t, "")
	s.keys = replays
	return s
}

// secrets are words that nobody may read in Temporal, by what they stand in.
type secrets struct {
	mu    sync.Mutex
	words map[string]string
}

func (s *secrets) in(what string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.words[what] = "s3cret-" + strings.ReplaceAll(what, " ", "-")
	return s.words[what]
}

// tellSecrets plays all that a job and a refund can meet, each with a secret in it, and returns what Temporal showed of it
// while it went on.
func (s *refundStage) tellSecrets(hidden *secrets) (shown []proto.Message) {
	s.t.Helper()
	describe := func(workflowID string, ready func([]*workflowpb.PendingActivityInfo) bool) {
		s.t.Helper()
		eventually(s.t, "Temporal shows what goes on", func() bool {
			described, err := s.temporal.DescribeWorkflow(s.ctx(), workflowID, "")
			require.NoError(s.t, err)
			if ready(described.RawResponse.GetPendingActivities()) {
				shown = append(shown, described.RawResponse)
				return true
			}
			return false
		})
	}
	finish := make(chan struct{})
	s.cast("j1", func(p *part) {
		p.work = func(ctx context.Context, meta contract.WorkMeta) (any, error) {
			if meta.Attempt < 3 {
				return nil, temporal.NewApplicationErrorWithOptions(hidden.in("work error"), "Busy", temporal.ApplicationErrorOptions{
					Cause: errors.New(hidden.in("cause")), Details: []any{hidden.in("details")},
				})
			}
			for {
				activity.RecordHeartbeat(ctx, hidden.in("heartbeat"))
				select {
				case <-finish:
					return map[string]string{"url": hidden.in("output")}, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(100 * time.Millisecond):
				}
			}
		}
	})
	input, summary := json.RawMessage(fmt.Sprintf(`{"scene":%q}`, hidden.in("input"))), hidden.in("summary")
	job := s.job("j1", attempts(2), func(j *contract.Job) { j.Work.Input, j.Summary = input, summary })
	s.startCharged(job)
	s.reaches("j1", contract.StateDeadLetter)
	assert.Contains(s.t, value[string](s.stage, `SELECT last_error FROM reclaim.jobs WHERE tenant_id = $1 AND job_id = 'j1'`, s.tenant),
		hidden.in("work error"), "Postgres has it in plain text")
	retry := decision("r1", contract.ActionRetry)
	retry.Operator, retry.Reason = hidden.in("operator"), hidden.in("reason")
	s.resolve("j1", retry)
	describe(job.WorkflowID(), func(pending []*workflowpb.PendingActivityInfo) bool {
		return len(pending) == 1 && pending[0].GetHeartbeatDetails() != nil
	})
	assert.Contains(s.t, s.status("j1").WaitsFor, "late success of attempt 3")

	// What a run refuses comes back in the words that it has without the codec.
	_, err := s.client.Resolve(s.ctx(), s.tenant, "j1", decision("r2", contract.ActionRetry))
	refused, _ := errors.AsType[*contract.Error](err)
	require.NotNil(s.t, refused, "%v", err)
	assert.Equal(s.t, contract.CodeBadResolution, refused.Code)
	assert.Contains(s.t, refused.Message, "retry")
	other := job
	other.Cost++
	handle, err := s.temporal.UpdateWorkflow(s.ctx(), client.UpdateWorkflowOptions{
		WorkflowID: job.WorkflowID(), UpdateName: contract.AwaitChargeUpdate, Args: []any{other},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(s.ctx(), nil)
	}
	app, _ := errors.AsType[*temporal.ApplicationError](err)
	require.NotNil(s.t, app, "%v", err)
	var details contract.Error
	require.NoError(s.t, app.Details(&details))
	assert.Equal(s.t, contract.CodeConflict, details.Code)

	require.NoError(s.t, s.client.ReportOutcome(s.ctx(), s.tenant, "j1", contract.Outcome{
		Attempt: 1, State: contract.OutcomeFailed, Error: hidden.in("outcome error"), Source: hidden.in("source"),
	}))
	require.NoError(s.t, s.temporal.SignalWorkflow(s.ctx(), job.WorkflowID(), "", contract.ResolveMessage,
		map[string]string{"id": "r3", "action": hidden.in("bad action")}))
	eventually(s.t, "the report and the decision are taken in", func() bool {
		return slices.ContainsFunc(s.events("j1"), func(event string) bool { return strings.Contains(event, hidden.in("outcome error")) }) &&
			value[bool](s.stage, `SELECT EXISTS (SELECT FROM reclaim.resolutions WHERE tenant_id = $1 AND resolution_id = 'r3')`, s.tenant)
	})
	close(finish)
	result := s.runEnds("j1")
	s.assertReclaimed(result)
	assert.Contains(s.t, string(result.Output), hidden.in("output"))
	assert.Equal(s.t, result, s.await("j1"))

	s.deadLetter("j2")
	delivered := decision("r1", contract.ActionDeliver)
	delivered.Evidence = hidden.in("evidence")
	s.resolve("j2", delivered)
	s.assertReclaimed(s.runEnds("j2"))

	s.startCharged(s.job("j3"))
	s.next("j3")
	require.NoError(s.t, s.client.ReportOutcome(s.ctx(), s.tenant, "j3", contract.Outcome{
		State: contract.OutcomeSucceeded, Output: json.RawMessage(fmt.Sprintf("%q", hidden.in("reported output"))), Source: "callback",
	}))
	s.assertDelivered(s.runEnds("j3"))

	s.job("bad")
	err = s.startPlain(map[string]any{"tenant": s.tenant, hidden.in("unknown field"): 3}, "bad").Get(s.ctx(), nil)
	assert.Equal(s.t, string(contract.CodeBadInput), errorType(err))
	assert.ErrorContains(s.t, err, hidden.in("unknown field"))
	err = s.startPlain(other, "j1").Get(s.ctx(), nil)
	assert.Equal(s.t, string(contract.CodeConflict), errorType(err))

	n := len(s.refunds)
	s.simulator.Script(s.number(n), simulator.Script{Life: []simulator.Step{{After: 3 * time.Second, Status: "succeeded"}}})
	request := s.request(n, 1000)
	request.Reason = hidden.in("refund reason")
	s.refunds = append(s.refunds, s.ask(s.client, request).RefundID)
	refundID := contract.RefundWorkflowID(s.tenant, s.number(n))
	s.refundReaches(s.number(n), contract.RefundPending)
	describe(refundID, func(pending []*workflowpb.PendingActivityInfo) bool {
		return len(pending) == 1 && pending[0].GetLastFailure() != nil
	})
	assert.Equal(s.t, contract.RefundSucceeded, s.refundEnds(s.number(n)).State)

	for _, id := range []string{job.WorkflowID(), contract.JobWorkflowID(s.tenant, "j2"), contract.JobWorkflowID(s.tenant, "j3"),
		contract.JobWorkflowID(s.tenant, "bad"), refundID} {
		for _, runID := range s.runsOf(id) {
			for _, event := range s.historyOf(id, runID) {
				shown = append(shown, event)
			}
			described, err := s.temporal.DescribeWorkflow(s.ctx(), id, runID)
			require.NoError(s.t, err)
			shown = append(shown, described.RawResponse)
		}
	}
	listed, err := s.temporal.ListWorkflow(s.ctx(), &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("ReclaimTenant = '%s'", s.tenant),
	})
	require.NoError(s.t, err)
	require.NotEmpty(s.t, listed.GetExecutions())
	return append(shown, listed)
}

// readable returns all that can be read in the messages: their JSON, their bytes, and every text and byte field alone.
func readable(t *testing.T, messages []proto.Message) string {
	t.Helper()
	var all strings.Builder
	for _, message := range messages {
		text, err := protojson.Marshal(message)
		require.NoError(t, err)
		raw, err := proto.Marshal(message)
		require.NoError(t, err)
		all.Write(text)
		all.Write(raw)
		walk(message.ProtoReflect(), func(_ string, field protoreflect.Value) {
			switch value := field.Interface().(type) {
			case string:
				all.WriteString(value + "\n")
			case []byte:
				all.Write(append(value, '\n'))
			}
		})
	}
	return all.String()
}

// plainPayloads lists where in the messages payloads are that are not encrypted, search attributes left out.
func plainPayloads(messages []proto.Message) (where []string) {
	for _, message := range messages {
		name := string(message.ProtoReflect().Descriptor().Name())
		walk(message.ProtoReflect(), func(path string, field protoreflect.Value) {
			inner, ok := field.Interface().(protoreflect.Message)
			if !ok {
				return
			}
			payload, ok := inner.Interface().(*commonpb.Payload)
			if ok && string(payload.GetMetadata()["encoding"]) != codec.Encoding && !strings.Contains(path, ".search_attributes.") {
				where = append(where, fmt.Sprintf("%s%s: %s", name, path, payload.GetData()))
			}
		})
	}
	return where
}

// walk visits every value within the message, with its path.
func walk(message protoreflect.Message, visit func(path string, value protoreflect.Value)) {
	var within func(path string, message protoreflect.Message)
	one := func(path string, isMessage bool, value protoreflect.Value) {
		visit(path, value)
		if isMessage {
			within(path, value.Message())
		}
	}
	within = func(path string, message protoreflect.Message) {
		message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
			here := path + "." + string(field.Name())
			switch {
			case field.IsMap():
				value.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
					visit(here, key.Value())
					one(here, field.MapValue().Message() != nil, value)
					return true
				})
			case field.IsList():
				for i := range value.List().Len() {
					one(here, field.Message() != nil, value.List().Get(i))
				}
			default:
				one(here, field.Message() != nil, value)
			}
			return true
		})
	}
	within("", message)
}

// The plain story shows every secret, so that the private one proves something.
func TestTemporalReadsNoSecretOfAJobOrARefundWhereThereAreKeys(t *testing.T) {
	needsQuiet(t)
	for name, keys := range map[string]*codec.Keys{"plain": nil, "private": keysOf(t, "k1")} {
		t.Run(name, func(t *testing.T) {
			s := newPrivateStage(t, keys, keys)
			t.Cleanup(s.startWorker(t, s.store, s.queue))
			t.Cleanup(s.crew.startOn(t, dialWith(t, s.address, workRPCTimeout, keys)))
			t.Cleanup(s.startRelay(s.temporal))
			hidden := &secrets{words: map[string]string{}}
			shown := s.withChannel(eager).tellSecrets(hidden)
			require.Len(t, hidden.words, 16)
			text := readable(t, shown)
			for what, word := range hidden.words {
				if keys == nil {
					assert.Contains(t, text, word, what)
				} else {
					assert.NotContains(t, text, word, what)
				}
			}
			assert.Equal(t, keys == nil, !strings.Contains(text, "Encoded failure"))
			if keys != nil {
				assert.Empty(t, plainPayloads(shown))
			} else {
				assert.NotEmpty(t, plainPayloads(shown))
			}
			for _, word := range []string{s.tenant, account, "j1", order, "Busy", workActivity} {
				assert.Contains(t, text, word, "what is not encrypted, as docs/privacy.md says")
			}
		})
	}
}

// The answer about the workflow itself is what the Web UI's dialogs are made from.
func TestTheAnswersOfQueriesAreEncryptedToo(t *testing.T) {
	keys := keysOf(t, "k1")
	s := newPrivateStage(t, keys, keys)
	t.Cleanup(s.startWorker(t, s.store, s.queue))
	t.Cleanup(s.crew.startOn(t, dialWith(t, s.address, workRPCTimeout, keys)))
	job := s.job("j1")
	s.startCharged(job)
	call := s.next("j1")
	for _, query := range []string{contract.StatusQuery, "__temporal_workflow_metadata", "__stack_trace"} {
		answer, err := s.temporal.WorkflowService().QueryWorkflow(s.ctx(), &workflowservice.QueryWorkflowRequest{
			Namespace: "default", Execution: &commonpb.WorkflowExecution{WorkflowId: job.WorkflowID()},
			Query: &querypb.WorkflowQuery{QueryType: query},
		})
		require.NoError(t, err)
		require.Len(t, answer.GetQueryResult().GetPayloads(), 1)
		assert.Equal(t, codec.Encoding, string(answer.GetQueryResult().GetPayloads()[0].GetMetadata()["encoding"]), query)
	}
	call.deliver("done")
	s.assertDelivered(s.runEnds("j1"))
}

func TestKeysAreSwitchedOnAndRotatedInTheMiddleOfAJob(t *testing.T) {
	both := keysOf(t, "new", "old")
	s := newPrivateStage(t, nil, both)
	// Everybody learns to read a key before the first one writes with it.
	stopCrew := s.crew.startOn(t, dialWith(t, s.address, workRPCTimeout, nil))
	stop := s.startWorker(t, s.store, s.queue)
	job := s.job("j1", attempts(1))
	s.startCharged(job)
	s.next("j1").fail(errBusy)
	s.reaches("j1", contract.StateDeadLetter)
	stop()
	stopCrew()

	old := s.as(t, keysOf(t, "old"))
	stopCrew = s.crew.startOn(t, dialWith(t, s.address, workRPCTimeout, keysOf(t, "old", "new")))
	stop = old.startWorker(t, s.store, s.queue)
	s.client = old.asker(s.queue)
	s.resolve("j1", decision("r1", contract.ActionRetry))
	second := s.next("j1")
	require.NoError(t, s.client.ReportOutcome(s.ctx(), s.tenant, "j1", contract.Outcome{
		Attempt: 1, State: contract.OutcomeFailed, Error: "seen", Source: "callback",
	}))
	stop()

	s.client = s.as(t, both).asker(s.queue)
	stop = s.as(t, both).startWorker(t, s.store, s.queue)
	second.fail(errBusy)
	s.reaches("j1", contract.StateDeadLetter)
	s.resolve("j1", decision("r2", contract.ActionRetry))
	third := s.next("j1")
	assert.Equal(t, 3, third.meta.Attempt)
	third.deliver("done")
	s.assertReclaimed(s.await("j1"))
	t.Cleanup(stopCrew)
	t.Cleanup(stop)
	used := map[string]bool{}
	for _, event := range s.history("j1", "") {
		walk(event.ProtoReflect(), func(_ string, field protoreflect.Value) {
			if inner, ok := field.Interface().(protoreflect.Message); ok {
				if payload, ok := inner.Interface().(*commonpb.Payload); ok {
					used[string(payload.GetMetadata()[codec.MetadataKeyID])] = true
				}
			}
		})
	}
	assert.Equal(t, map[string]bool{"": true, "old": true, "new": true}, used)
}

// Without its key, the SDK would drop the report for good, and the customer would keep the refund and the result.
func TestAWorkerWithoutTheKeyDecidesNothingUntilItHasIt(t *testing.T) {
	both := keysOf(t, "new", "old")
	s := newPrivateStage(t, keysOf(t, "old"), both)
	t.Cleanup(s.crew.startOn(t, dialWith(t, s.address, workRPCTimeout, both)))
	stop := s.startWorker(t, s.store, s.queue)
	job := s.job("j1", promised(time.Second))
	s.startCharged(job)
	s.next("j1")
	s.isRefunded("j1")
	stop()
	require.NoError(t, s.client.ReportOutcome(s.ctx(), s.tenant, "j1", contract.Outcome{
		State: contract.OutcomeSucceeded, Output: json.RawMessage(`"reported"`), Source: "callback",
	}))
	stop = s.as(t, keysOf(t, "new")).startWorker(t, s.store, s.queue)
	eventually(t, "the workflow task fails and says which key is missing", func() bool {
		for _, event := range s.history("j1", "") {
			failed := event.GetWorkflowTaskFailedEventAttributes()
			if failed == nil {
				continue
			}
			err := s.converting().FailureConverter.FailureToError(failed.GetFailure())
			if strings.Contains(err.Error(), `the key "old", which is not in the file that RECLAIM_CODEC_KEYS names`) {
				return true
			}
		}
		return false
	})
	stop()
	assert.Equal(t, string(contract.StateRunning), value[string](s, `SELECT state FROM reclaim.jobs WHERE tenant_id = $1`, s.tenant))
	t.Cleanup(s.as(t, both).startWorker(t, s.store, s.queue))
	s.client = s.as(t, both).asker(s.queue)
	result := s.await("j1")
	s.assertReclaimed(result)
	assert.JSONEq(t, `"reported"`, string(result.Output))
	// Its histories have failed tasks, which are a mistake everywhere else.
	s.part("j1").end()
	s.jobs = nil
}

// A signal that waits is where this SDK loses most: it is all that the first task of a new worker finds.
func TestASignalUnderAnUnknownKeyIsNotDropped(t *testing.T) {
	keys := keysOf(t, "old")
	s := newPrivateStage(t, keys, keysOf(t, "old", "xenon"))
	t.Cleanup(s.crew.startOn(t, dialWith(t, s.address, workRPCTimeout, keys)))
	stop := s.startWorker(t, s.store, s.queue)
	s.deadLetter("j1")
	// Somebody is ahead of the worker.
	ahead := s.as(t, keysOf(t, "xenon", "old"))
	_, err := ahead.asker(s.queue).Resolve(s.ctx(), s.tenant, "j1", decision("r1", contract.ActionDeliver))
	assert.Equal(t, contract.CodeUnavailable, contract.CodeOf(err), "%v", err)
	assert.ErrorContains(t, err, `"xenon"`, "an update is answered: nothing of it is lost")
	require.NoError(t, ahead.temporal.SignalWorkflow(s.ctx(), contract.JobWorkflowID(s.tenant, "j1"), "", contract.ResolveMessage,
		decision("r1", contract.ActionDeliver)))
	eventually(t, "the workflow task fails", func() bool {
		return slices.ContainsFunc(s.historyTypes("j1"), func(kind enumspb.EventType) bool {
			return kind == enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED
		})
	})
	stop()
	t.Cleanup(s.as(t, keysOf(t, "old", "xenon")).startWorker(t, s.store, s.queue))
	s.reaches("j1", contract.StateSucceeded)
	s.assertReclaimed(s.await("j1"))
	s.part("j1").end()
	s.jobs = nil
}

func TestWhoHasNoKeysRefusesWhatIsEncrypted(t *testing.T) {
	keys := keysOf(t, "k1")
	s := newPrivateStage(t, nil, nil)
	stop := s.startWorker(t, s.store, s.queue)
	_, err := s.as(t, keys).asker(s.queue).StartJob(s.ctx(), s.job("j1"))
	assert.Equal(t, contract.CodeBadInput, contract.CodeOf(err), "%v", err)
	assert.Empty(t, s.story("j1"))
	stop()
	s.checkHistories(contract.JobWorkflowID(s.tenant, "j1"))

	s.keys, s.jobs = keys, nil
	private := s.as(t, keys)
	s.client = private.asker(s.queue)
	t.Cleanup(private.startWorker(t, s.store, s.queue))
	t.Cleanup(s.crew.startOn(t, dialWith(t, s.address, workRPCTimeout, nil)))
	s.startCharged(s.job("j2", attempts(1)))
	s.reaches("j2", contract.StateDeadLetter)
	assert.Contains(t, value[string](s, `SELECT last_error FROM reclaim.jobs WHERE tenant_id = $1`, s.tenant), "unable to decode")
	assert.Zero(t, s.part("j2").invocations())
	s.resolve("j2", decision("r1", contract.ActionWriteOff))
	s.assertRefunded(s.await("j2"), contract.StateWrittenOff)
}

func (s *stage) historyTypes(jobID string) (types []enumspb.EventType) {
	s.t.Helper()
	for _, event := range s.history(jobID, "") {
		types = append(types, event.GetEventType())
	}
	return types
}
