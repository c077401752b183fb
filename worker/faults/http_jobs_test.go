package faults_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/starter/api"
	reclaim "github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// body is the job as a product sends it: tenant and actor follow from the key.
func body(t *testing.T, job contract.Job) json.RawMessage {
	t.Helper()
	job.Tenant, job.Actor = "", ""
	raw, err := json.Marshal(job)
	require.NoError(t, err)
	var members map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(raw, &members))
	delete(members, "tenant")
	raw, err = json.Marshal(members)
	require.NoError(t, err)
	return raw
}

func TestAJobIsStartedFollowedAndToldOverHTTP(t *testing.T) {
	s := newStage(t)
	door, key := openHTTP(t, s.client), s.keyOf(s.tenant).Secret
	job := s.job("j1", promised(time.Second))
	submitted := into[api.Submitted](door.post("/v1/jobs", key, body(t, job)), http.StatusCreated)
	assert.Equal(t, "/v1/jobs/j1", submitted.Status)
	s.requireCharged(job, contract.ChargeVerdict{Verdict: submitted.Charge})
	assert.EqualValues(t, credits-cost, *submitted.Balance)
	assert.Equal(t, contract.VerdictAlready, into[api.Submitted](door.post("/v1/jobs", key, body(t, job)), http.StatusOK).Charge)
	call := s.next("j1")
	s.isRefunded("j1")
	seen := into[reclaim.Job](door.get("/v1/jobs/j1", key), http.StatusOK)
	assert.Equal(t, contract.StateRunning, seen.State)
	assert.Equal(t, contract.Money{Charged: cost, Refunded: cost}, seen.Money)
	waiting := make(chan httpAnswer, 1)
	go func() { waiting <- door.get("/v1/jobs/j1", key, "Prefer", "respond-async, wait=240") }()
	eventually(t, "the request waits", func() bool { return door.waits() > 0 })
	call.deliver(map[string]string{"url": "s3://v"})
	answer := <-waiting
	seen = into[reclaim.Job](answer, http.StatusOK)
	assert.Equal(t, "wait=60", answer.header.Get("Preference-Applied"), "no longer than the longest wait")
	assert.Equal(t, contract.StateSucceeded, seen.State)
	assert.True(t, seen.Late)
	assert.JSONEq(t, `{"url":"s3://v"}`, string(seen.Output))
	told := into[api.Timeline](door.get("/v1/jobs/j1/timeline", key), http.StatusOK)
	var kinds []string
	for _, moment := range told.Moments {
		kinds = append(kinds, moment.Kind)
	}
	assert.Equal(t, "charge refund delivered reclaim", strings.Join(kinds, " "))
	statement := into[api.StatementAnswer](door.get("/v1/accounts/"+account+"/statement", key), http.StatusOK)
	assert.EqualValues(t, credits-cost, statement.Closing)
	assert.Len(t, statement.Entries, 4)
	other := s.job("j1", func(j *contract.Job) { j.Cost++ })
	problem := door.post("/v1/jobs", key, body(t, other)).refused(http.StatusConflict, contract.CodeConflict)
	assert.Equal(t, contract.RetryNewKey, problem.Retry)
}

func TestADeclinedJobIs402AndStartsOnceItIsPaidFor(t *testing.T) {
	s := newStage(t)
	door, key := openHTTP(t, s.client), s.keyOf(s.tenant).Secret
	job := s.job("j1", func(j *contract.Job) { j.Cost = credits + 1 })
	problem := door.post("/v1/jobs", key, body(t, job)).refused(http.StatusPaymentRequired, contract.CodeInsufficientCredits)
	assert.Equal(t, contract.RetrySameKey, problem.Retry)
	assert.EqualValues(t, credits, problem.Verdict.Balance)
	seen := into[reclaim.Job](door.get("/v1/jobs/j1", key), http.StatusOK)
	assert.Equal(t, contract.StateDeclined, seen.State)
	door.post("/v1/accounts/"+account+"/topups", key, map[string]any{"amount": 1}, "Idempotency-Key", "one more")
	assert.NotNil(t, into[api.Submitted](door.post("/v1/jobs", key, body(t, job)), http.StatusCreated).Balance)
	s.next("j1").deliver("done")
	s.assertNet(s.runEnds("j1"), credits+1)
}

// assertNet checks a delivered job of another cost than the usual.
func (s *stage) assertNet(result contract.JobResult, net int64) {
	s.t.Helper()
	assert.Equal(s.t, contract.StateSucceeded, result.State)
	assert.Equal(s.t, net, result.Net)
}

// A queue that nobody polls keeps the charge from being known.
func TestASubmissionWhoseChargeTakesLongIsAccepted(t *testing.T) {
	needsQuiet(t)
	t.Parallel()
	w := sharedWorld(t)
	s := w.stage(t, "")
	door, key := openHTTP(t, w.asker("nobody-"+s.tenant)), s.keyOf(s.tenant).Secret
	job := contract.Job{
		Tenant: s.tenant, JobID: "slow", Account: account, Cost: 1, Promise: contract.Duration(time.Minute),
		Work: contract.Work{Activity: workActivity, TaskQueue: s.crew.queue, Timeout: contract.Duration(time.Minute)},
	}
	began := time.Now()
	answer := door.post("/v1/jobs", key, body(t, job))
	submitted := into[api.Submitted](answer, http.StatusAccepted)
	assert.GreaterOrEqual(t, time.Since(began), 5*time.Second)
	assert.Empty(t, submitted.Charge)
	assert.Equal(t, "/v1/jobs/slow", answer.header.Get("Location"))
	seen := into[reclaim.Job](door.get("/v1/jobs/slow", key), http.StatusOK)
	assert.Equal(t, contract.StateCharging, seen.State)
	job.Cost++
	door.post("/v1/jobs", key, body(t, job)).refused(http.StatusServiceUnavailable, contract.CodeUnavailable)
	require.NoError(t, s.temporal.TerminateWorkflow(s.ctx(), job.WorkflowID(), "", "the test is over"))
}

func TestWhileTemporalIsAwayASubmissionSaysThatItMayBeRepeated(t *testing.T) {
	s := newRefundStage(t, silent)
	absent, _ := s.absentTemporal()
	door, key := openHTTP(t, reclaim.New(absent, s.store, s.queue)), s.keyOf(s.tenant).Secret
	answer := door.post("/v1/jobs", key, body(t, s.job("j1")))
	problem := answer.refused(http.StatusServiceUnavailable, contract.CodeUnavailable)
	assert.Equal(t, contract.RetrySameKey, problem.Retry)
	assert.NotEmpty(t, answer.header.Get("Retry-After"))
	assert.NotContains(t, problem.Detail, "127.0.0.1", "where the servers are is not the caller's to know")
	door.get("/v1/jobs/j1", key).refused(http.StatusServiceUnavailable, contract.CodeUnavailable)
}

func TestAPersonDecidesOverHTTP(t *testing.T) {
	s := newStage(t)
	door, key := openHTTP(t, s.client), s.keyOf(s.tenant).Secret
	s.deadLetter("j1")
	retry := map[string]any{"id": "r1", "action": "retry", "reason": "the GPU is back"}
	answer := into[contract.ResolutionAnswer](door.post("/v1/jobs/j1/resolution", key, retry), http.StatusOK)
	assert.Equal(t, contract.ResolutionAnswer{ID: "r1", Outcome: contract.ResolutionApplied, State: contract.StateRunning}, answer)
	assert.Equal(t, "test", value[string](s, `SELECT operator FROM reclaim.resolutions WHERE tenant_id = $1 AND resolution_id = 'r1'`, s.tenant),
		"who decides is the key's actor, unless somebody else is named")
	assert.Equal(t, answer, into[contract.ResolutionAnswer](door.post("/v1/jobs/j1/resolution", key, retry), http.StatusOK))
	retry["reason"] = "another"
	door.post("/v1/jobs/j1/resolution", key, retry).refused(http.StatusConflict, contract.CodeBadResolution)
	into[api.Accepted](door.post("/v1/jobs/j1/outcome", key, map[string]any{"state": "succeeded", "output": 7}), http.StatusAccepted)
	seen := into[reclaim.Job](door.get("/v1/jobs/j1", key, "Prefer", "wait=60"), http.StatusOK)
	assert.Equal(t, contract.StateSucceeded, seen.State)
	assert.JSONEq(t, "7", string(seen.Output))
	s.assertReclaimed(s.runEnds("j1"))
}

func TestACancellationOverHTTPRefunds(t *testing.T) {
	s := newStage(t)
	door, key := openHTTP(t, s.client), s.keyOf(s.tenant).Secret
	s.startCharged(s.job("j1"))
	s.next("j1")
	into[api.Accepted](door.post("/v1/jobs/j1/cancellation", key, nil), http.StatusAccepted)
	s.assertRefunded(s.runEnds("j1"), contract.StateCanceled)
	assert.Equal(t, contract.StateCanceled, into[reclaim.Job](door.get("/v1/jobs/j1", key), http.StatusOK).State)
}

func TestARefundIsAskedForAndFollowedOverHTTP(t *testing.T) {
	s := newRefundStage(t, eager)
	door, key := openHTTP(t, s.client), s.keyOf(s.tenant).Secret
	request := map[string]any{"orderId": order, "amount": 500, "reason": "ticket 17"}
	door.post("/v1/refunds", key, request).refused(http.StatusBadRequest, contract.CodeBadInput)
	answer := door.post("/v1/refunds", key, request, "Idempotency-Key", "refund 1")
	requested := into[reclaim.RequestedRefund](answer, http.StatusCreated)
	s.refunds = append(s.refunds, requested.RefundID)
	assert.Equal(t, "/v1/refunds/"+requested.RefundID, answer.header.Get("Location"))
	assert.Equal(t, requested.RefundID, into[reclaim.RequestedRefund](door.post("/v1/refunds", key, request, "Idempotency-Key", "refund 1"), http.StatusOK).RefundID)
	request["amount"] = 501
	door.post("/v1/refunds", key, request, "Idempotency-Key", "refund 1").refused(http.StatusConflict, contract.CodeConflict)
	request["amount"] = paid + 1
	door.post("/v1/refunds", key, request, "Idempotency-Key", "refund 2").refused(http.StatusConflict, contract.CodeCapacityExceeded)
	seen := into[reclaim.Refund](door.get("/v1/refunds/"+requested.RefundID, key, "Prefer", "wait=60"), http.StatusOK)
	assert.Equal(t, contract.RefundSucceeded, seen.State)
	assert.NotEmpty(t, seen.Story)
	found := into[reclaim.Refund](door.get("/v1/refunds?key=refund%201", key), http.StatusOK)
	assert.Equal(t, requested.RefundID, found.RefundID)
	door.get("/v1/refunds?key=refund%209", key).refused(http.StatusNotFound, contract.CodeNotFound)
}

func TestAPersonDecidesARefundOverHTTP(t *testing.T) {
	s := newRefundStage(t, silent)
	door, key := openHTTP(t, s.client), s.keyOf(s.tenant).Secret
	refundID := s.refund(500, life(step(0, "pending")))
	s.refundReaches(refundID, contract.RefundPending)
	answer := door.post("/v1/refunds/"+refundID+"/resolution", key, map[string]any{"id": "r1", "action": "cancel", "reason": "no"})
	answer.refused(http.StatusConflict, contract.CodeBadResolution)
	extended := into[contract.RefundResolutionAnswer](door.post("/v1/refunds/"+refundID+"/resolution", key,
		map[string]any{"id": "r2", "action": "extend", "reason": "the bank is slow", "operator": "ann", "approver": "bob"}), http.StatusOK)
	assert.Equal(t, contract.RefundPending, extended.State)
	assert.Equal(t, "ann (by the key of test)/bob", value[string](s.stage, `SELECT operator || '/' || approver FROM reclaim.resolutions
		WHERE tenant_id = $1 AND resolution_id = 'r2'`, s.tenant), "whose key it was is kept beside whom it names")
	for _, approver := range []string{"Ann", "test", " ann "} {
		problem := door.post("/v1/refunds/"+refundID+"/resolution", key, map[string]any{
			"id": "r3", "action": "extend", "reason": "the bank is slow", "operator": "ann", "approver": approver,
		}).refused(http.StatusBadRequest, contract.CodeBadInput)
		assert.Equal(t, "approver", problem.Fields[0].Field)
	}
}

func TestADoorThatStopsAnswersThoseWhoWait(t *testing.T) {
	s := newStage(t)
	door, key := openHTTP(t, s.client), s.keyOf(s.tenant).Secret
	s.startCharged(s.job("j1"))
	waiting := make(chan httpAnswer, 1)
	go func() { waiting <- door.get("/v1/jobs/j1", key, "Prefer", "wait=60") }()
	eventually(t, "the request waits", func() bool { return door.waits() > 0 })
	door.Stop()
	assert.Equal(t, contract.StateRunning, into[reclaim.Job](<-waiting, http.StatusOK).State)
	door.get("/readyz", "").refused(http.StatusServiceUnavailable, contract.CodeUnavailable)
	s.next("j1").deliver("done")
	s.assertDelivered(s.runEnds("j1"))
}
