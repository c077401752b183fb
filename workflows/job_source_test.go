package workflows

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// toSource makes the job's refund leave through order o1 of its account.
func (s *stage) toSource() *stage {
	s.book.orders["o1"] = "team"
	return s.spec(func(j *contract.Job) { j.RefundTo, j.OrderID = contract.RefundToSource, "o1" })
}

func TestEveryCallThatMayRefundNamesTheOrder(t *testing.T) {
	once := func(j *contract.Job) { j.Retry.MaxAttempts = 1 }
	stories := map[string]func(*stage){
		"ChargeJob SettleJob":           func(s *stage) { s.work = []act{delivers(time.Second, 1)} },
		"ChargeJob RefundJob SettleJob": func(s *stage) { s.work = []act{delivers(45*time.Second, 1)} },
		"ChargeJob CloseJob":            func(s *stage) { s.work = []act{failsForGood(time.Second, "x")} },
		"ChargeJob RefundJob CloseJob": func(s *stage) {
			s.work = []act{hangs()}
			s.at(time.Second, s.env.CancelWorkflow)
		},
		"ChargeJob ResolveJob": func(s *stage) {
			s.work = []act{hangs()}
			s.at(time.Second, func() { s.signal(contract.ResolveMessage, decision("r1", contract.ActionWriteOff)) })
		},
		"ChargeJob RefundJob ParkJob ResolveJob": func(s *stage) {
			s.spec(once).work = []act{fails(time.Second, "x")}
			s.at(time.Minute, func() { s.update("u1", contract.ResolveMessage, decision("r1", contract.ActionWriteOff)) })
		},
	}
	for name, story := range stories {
		for target, want := range map[contract.RefundTarget]activities.SourceOrder{
			contract.RefundToSource: {OrderID: "o1", Account: "team"}, contract.RefundToBalance: {},
		} {
			t.Run(name+" to "+string(target), func(t *testing.T) {
				s := newStage(t).toSource().spec(func(j *contract.Job) { j.RefundTo = target })
				story(s)
				s.run()
				require.NoError(t, s.err)
				asked := 0
				for call, sources := range s.jobs.sources {
					assert.Contains(t, name, call)
					for _, source := range sources {
						asked++
						assert.Equal(t, want, source, call)
					}
				}
				assert.Len(t, s.jobs.calls, asked+s.jobs.count("ParkJob")+s.jobs.count("RecordAttempt"), "these move nothing")
			})
		}
	}
}

func TestARefundToItsSourceIsShownInTheStatus(t *testing.T) {
	s := newStage(t, delivers(45*time.Second, 1)).toSource()
	var before, after contract.JobStatus
	s.at(29*time.Second, func() { before = s.status() })
	s.at(31*time.Second, func() { after = s.status() })
	s.run()
	assert.Empty(t, before.RefundID)
	assert.Equal(t, contract.JobRefundNumber("acme", "j1"), after.RefundID)
	assert.Empty(t, after.Note)
	assert.Equal(t, contract.Money{Charged: cost, Refunded: cost}, after.Money)
	assert.Empty(t, s.last(contract.AttributeAttention))
}

func TestLateSuccessAfterARefundToItsSource(t *testing.T) {
	for name, c := range map[string]struct {
		was, becomes contract.RefundState
		balance      int64
	}{
		"what was not sent is withdrawn":           {contract.RefundAccepted, contract.RefundCanceled, 100 - cost},
		"what is under way is reclaimed":           {contract.RefundUnknown, contract.RefundUnknown, 100 - 2*cost},
		"what went back is reclaimed all the same": {contract.RefundSucceeded, contract.RefundSucceeded, 100 - 2*cost},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, delivers(45*time.Second, "v")).toSource()
			s.at(40*time.Second, func() { s.row().source = c.was })
			s.run()
			require.NoError(t, s.err)
			assert.Equal(t, contract.StateSucceeded, s.result.State)
			assert.True(t, s.result.Late)
			assert.Equal(t, "charge refund reclaim", s.entries())
			assert.Equal(t, c.becomes, s.row().source)
			assert.Equal(t, c.balance, s.book.balances["team"])
			assert.Equal(t, contract.JobRefundNumber("acme", "j1"), s.status().RefundID)
			assert.Empty(t, s.last(contract.AttributeAttention))
		})
	}
	t.Run("into debt, where the customer spent what was left", func(t *testing.T) {
		s := newStage(t, delivers(45*time.Second, "v")).toSource()
		s.at(40*time.Second, func() { s.row().source, s.book.balances["team"] = contract.RefundSucceeded, 0 })
		s.run()
		assert.Equal(t, contract.StateSucceeded, s.result.State)
		assert.EqualValues(t, -cost, s.book.balances["team"])
	})
}

func TestARefundThatItsOrderDoesNotTakeStaysAndCallsAPerson(t *testing.T) {
	const note = "the credits stay on the account: it has only 30 of them"
	review := contract.AttentionRefundUnconfirmed
	// The account owes 10 when the refund comes.
	owing := func(s *stage) *stage {
		s.at(500*time.Millisecond, func() { s.book.balances["team"] = -10 })
		return s.toSource()
	}
	t.Run("after the end too", func(t *testing.T) {
		s := owing(newStage(t, failsForGood(time.Second, "x"))).run()
		assert.Equal(t, contract.StateFailed, s.result.State)
		status := s.status()
		assert.Equal(t, note, status.Note)
		assert.Empty(t, status.RefundID)
		assert.Equal(t, review, s.last(contract.AttributeAttention))
		assert.EqualValues(t, cost-10, s.book.balances["team"])
	})
	t.Run("until the work delivers late", func(t *testing.T) {
		s := owing(newStage(t, fails(time.Second, "x"), delivers(time.Minute, 1)))
		s.at(10*time.Second, func() {
			assert.Equal(t, note, s.status().Note)
			assert.Equal(t, review, s.last(contract.AttributeAttention))
		})
		s.run()
		assert.Equal(t, contract.StateSucceeded, s.result.State)
		assert.Equal(t, []string{review, ""}, s.history(contract.AttributeAttention))
		assert.Empty(t, s.status().Note, "the credits do not stay any more")
		assert.EqualValues(t, -10, s.book.balances["team"])
	})
	t.Run("until a later call can move it", func(t *testing.T) {
		s := owing(newStage(t, hangs()))
		s.at(time.Second, s.env.CancelWorkflow)
		s.jobs.during["RefundJob"] = func() { s.book.balances["team"] += 100 }
		s.run()
		assert.Equal(t, contract.StateCanceled, s.result.State)
		assert.Equal(t, []string{review, ""}, s.history(contract.AttributeAttention))
		assert.Equal(t, contract.JobRefundNumber("acme", "j1"), s.status().RefundID)
		assert.Empty(t, s.status().Note)
	})
	t.Run("a dead letter's own attention goes before", func(t *testing.T) {
		s := owing(newStage(t, fails(time.Second, "x"), hangs())).spec(func(j *contract.Job) { j.Retry.MaxAttempts = 1 })
		s.at(time.Minute, func() {
			assert.Equal(t, note, s.status().Note)
			s.signal(contract.ResolveMessage, decision("r1", contract.ActionRetry))
		})
		s.at(2*time.Minute, func() { s.signal(contract.ResolveMessage, decision("r2", contract.ActionWriteOff)) })
		s.run()
		assert.Equal(t, []string{review, contract.AttentionDeadLetter, review}, s.history(contract.AttributeAttention))
	})
}

func TestAnOrderThatIsNotTheAccountsIsRefusedBeforeAnything(t *testing.T) {
	for name, owner := range map[string]string{"unknown": "", "another account's": "other"} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t).toSource()
			s.book.orders["o1"] = owner
			s.busyUntil(5 * time.Second)
			var awaiting, resolving *reply
			s.at(time.Second, func() {
				awaiting = s.update("u1", contract.AwaitChargeUpdate, json.RawMessage(s.raw()))
				resolving = s.update("u2", contract.ResolveMessage, decision("r1", contract.ActionWriteOff))
			})
			s.run()
			assert.Equal(t, contract.CodeBadInput, refusedAs(s.err))
			assert.ErrorContains(t, s.err, "orderId must name an order of account team, which o1 is not")
			assert.True(t, awaiting.done)
			assert.Equal(t, contract.CodeBadInput, refusedAs(awaiting.err))
			assert.Equal(t, contract.CodeBadResolution, refusedAs(resolving.err))
			assert.EqualValues(t, 100, s.book.balances["team"])
			assert.Nil(t, s.row())
			assert.Empty(t, s.plays)
			assert.Empty(t, s.shown)
		})
	}
}

func TestARunWithAWrongOrderStillTakesWhatWasSentToTheJobThatItsIDNames(t *testing.T) {
	s := newStage(t)
	s.charged(time.Minute)
	s.spec(func(j *contract.Job) { j.RefundTo, j.OrderID = contract.RefundToSource, "nowhere" })
	s.jobs.during["ChargeJob"] = func() {
		delete(s.jobs.during, "ChargeJob")
		s.env.SignalWorkflowSkippingWorkflowTask(contract.OutcomeSignal,
			contract.Outcome{Attempt: 1, State: contract.OutcomeSucceeded, Source: "gpu"})
	}
	s.run()
	assert.Equal(t, contract.CodeBadInput, refusedAs(s.err))
	assert.Equal(t, contract.StateSucceeded, s.row().state)
	assert.Equal(t, []activities.SourceOrder{{}}, s.jobs.sources["SettleJob"], "by the terms of the job that was meant")
}

func TestAConflictingRunRefundsByTheTermsOfTheJobThatItsIDNames(t *testing.T) {
	s := newStage(t).toSource()
	s.charged(time.Second)
	s.spec(func(j *contract.Job) { j.RefundTo, j.OrderID = contract.RefundToBalance, "" })
	s.jobs.during["ChargeJob"] = s.env.CancelWorkflow
	s.improvise = func(string) act { return hangs() }
	s.run()
	assert.Equal(t, contract.CodeConflict, refusedAs(s.err))
	assert.Equal(t, contract.StateCanceled, s.row().state)
	assert.Equal(t, contract.RefundAccepted, s.row().source)
}
