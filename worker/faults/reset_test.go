package faults_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// resetPoints lists the workflow tasks of a run to which it can be reset.
func (s *stage) resetPoints(jobID, runID string) []int64 {
	s.t.Helper()
	var points []int64
	for _, event := range s.history(jobID, runID) {
		if event.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			points = append(points, event.GetEventId())
		}
	}
	require.NotEmpty(s.t, points)
	return points
}

// reset begins a new run from a workflow task of the given one, as an operator does in the Web UI.
func (s *stage) reset(jobID, runID string, point int64) {
	s.t.Helper()
	_, err := s.temporal.ResetWorkflowExecution(s.ctx(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace:                 "default",
		WorkflowExecution:         &commonpb.WorkflowExecution{WorkflowId: contract.JobWorkflowID(s.tenant, jobID), RunId: runID},
		Reason:                    "test",
		WorkflowTaskFinishEventId: point,
		RequestId:                 rand.Text(),
	})
	require.NoError(s.t, err)
}

// onShelf lets the crew do the job as the guide says: what was made under an idempotency key is not made again.
func (s *stage) onShelf(jobID string, ready <-chan struct{}) *shelf {
	done := newShelf()
	s.cast(jobID, func(p *part) {
		p.work = func(ctx context.Context, meta contract.WorkMeta) (any, error) {
			return done.keep(ctx, meta.IdempotencyKey, func() any {
				<-ready
				return "made once"
			})
		}
	})
	return done
}

func TestADeliveredJobResetToAnyOfItsTasksStaysAsItIs(t *testing.T) {
	for name, start := range map[string]func(s *stage, job contract.Job){
		"plain start": func(s *stage, job contract.Job) { s.startPlain(job, job.JobID) },
		"submission":  func(s *stage, job contract.Job) { s.startCharged(job) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			ready := make(chan struct{})
			done := s.onShelf("j1", ready)
			start(s, s.job("j1", promised(time.Second)))
			s.isRefunded("j1")
			close(ready)
			first := s.runEnds("j1")
			s.assertReclaimed(first)
			run := s.newestRun("j1")
			points := s.resetPoints("j1", run)
			require.GreaterOrEqual(t, len(points), 3)
			for _, point := range points {
				before := s.part("j1").invocations()
				s.reset("j1", run, point)
				require.NotEqual(t, run, s.newestRun("j1"))
				assert.Equal(t, first, s.runEnds("j1"), "reset to event %d", point)
				s.assertReclaimed(s.await("j1"))
				t.Logf("reset to event %d of a delivered job: the work was called %d times more", point,
					s.part("j1").invocations()-before)
			}
			assert.Equal(t, 1, done.runs(), "the work was done once")
			assert.EqualValues(t, credits-cost, s.balance())
		})
	}
}

func TestADeadLetterResetToAnyOfItsTasksStillWaitsForAPerson(t *testing.T) {
	s := newStage(t)
	s.deadLetter("j1")
	s.resolve("j1", decision("r1", contract.ActionRetry))
	s.next("j1").fail(errBusy)
	s.reaches("j1", contract.StateDeadLetter)
	isWaiting := func() bool { return s.status("j1").State == contract.StateDeadLetter && s.waitsForAPerson("j1") }
	eventually(t, "the run waits", isWaiting)
	run := s.newestRun("j1")
	for _, point := range s.resetPoints("j1", run) {
		s.reset("j1", run, point)
		eventually(t, "the new run waits", isWaiting)
		assert.Equal(t, "charge refund", s.story("j1"))
		assert.Equal(t, 1, value[int](s, `SELECT granted FROM reclaim.jobs WHERE tenant_id = $1`, s.tenant))
	}
	answer := s.resolve("j1", decision("r2", contract.ActionDeliver))
	assert.Equal(t, contract.StateSucceeded, answer.State)
	s.assertReclaimed(s.runEnds("j1"))
}

func (s *stage) waitsForAPerson(jobID string) bool {
	return s.status(jobID).WaitsFor == "a person's decision: resolve with retry, deliver or write_off"
}

func (s *stage) waitsForLateSuccess(jobID string) bool {
	return s.status(jobID).WaitsFor == "late success of attempt 1 (the customer is refunded)"
}

func TestARefundedJobThatWaitsCanBeResetToAnyOfItsTasks(t *testing.T) {
	s := newStage(t)
	ready := make(chan struct{})
	done := s.onShelf("j1", ready)
	s.startCharged(s.job("j1", promised(time.Second)))
	s.isRefunded("j1")
	isWaiting := func() bool { return s.waitsForLateSuccess("j1") }
	eventually(t, "the run waits", isWaiting)
	run := s.newestRun("j1")
	for _, point := range s.resetPoints("j1", run) {
		s.reset("j1", run, point)
		eventually(t, "the new run waits", isWaiting)
		assert.Equal(t, "charge refund", s.story("j1"))
	}
	close(ready)
	result := s.runEnds("j1")
	s.assertReclaimed(result)
	assert.Equal(t, 1, done.runs())
	t.Logf("the work was called %d times", s.part("j1").invocations())
}

func TestARetriedJobResetToAnyOfItsTasksStaysAsItIs(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("j1"))
	s.next("j1").fail(errBusy)
	s.next("j1").deliver("done")
	first := s.runEnds("j1")
	s.assertReclaimed(first)
	run := s.newestRun("j1")
	s.cast("j1", answersAtOnce("again"))
	for _, point := range s.resetPoints("j1", run) {
		before := s.part("j1").invocations()
		s.reset("j1", run, point)
		assert.Equal(t, first, s.runEnds("j1"), "reset to event %d", point)
		t.Logf("reset to event %d of a delivered job: the work was called %d times more", point,
			s.part("j1").invocations()-before)
	}
	s.assertReclaimed(s.await("j1"))
}
