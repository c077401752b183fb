package workflows

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// everySituation calls visit with each combination of the fields that next looks at, attempts up to one past the limit.
func everySituation(visit func(terms, situation)) {
	states := []contract.JobState{
		contract.StateRunning, contract.StateDeadLetter, contract.StateSucceeded, contract.StateDeclined,
		contract.StateFailed, contract.StateCanceled, contract.StateWrittenOff,
	}
	either := []bool{false, true}
	for _, t := range []terms{{true, 1}, {true, 2}, {false, 1}, {false, 2}} {
		for _, state := range states {
			for _, refunded := range either {
				for attempts := range 4 {
					for granted := range 2 {
						for flags := range 1 << 5 {
							for ended := endingNone; ended <= endingUnknown; ended++ {
								for work := workNone; work <= workStopping; work++ {
									for probe := probeNotDue; probe <= probePausing; probe++ {
										for pause := pauseNotDue; pause <= pauseRunning; pause++ {
											visit(t, situation{
												state: state, refunded: refunded, attempts: attempts, granted: granted,
												cancelRecorded: flags&1 > 0, cancelRequested: flags&2 > 0,
												promisePassed: flags&4 > 0, delivery: flags&8 > 0, leftover: flags&16 > 0,
												ended: ended, work: work, probe: probe, pause: pause,
											})
										}
									}
								}
							}
						}
					}
				}
			}
		}
	}
}

// laws are what must hold of every step in every situation. A law returns whether it holds.
var laws = []struct {
	name  string
	holds func(terms, situation, step) bool
}{
	{"a delivery is settled before anything else, and only a delivery is", func(_ terms, s situation, do step) bool {
		return s.delivery == (do == stepSettle)
	}},
	{"every step is one of the chart's", func(_ terms, _ situation, do step) bool {
		return do >= stepWait && do <= stepFinish
	}},
	{"nothing is started in a closed job or a dead letter", func(_ terms, s situation, do step) bool {
		stays := s.state != contract.StateRunning && !s.cancelRequested || !s.state.Open()
		return !stays || do != stepWork && do != stepProbe && do != stepPause
	}},
	{"no work is started after a cancel", func(_ terms, s situation, do step) bool {
		return do != stepWork || !s.cancelRequested
	}},
	{"no work is started and no probe asked while work is in flight", func(_ terms, s situation, do step) bool {
		return do != stepWork && do != stepProbe || s.work == workNone
	}},
	{"no work is started before the last attempt is recorded, the probe has answered and the pause is over",
		func(_ terms, s situation, do step) bool {
			return do != stepWork || s.ended == endingNone && s.probe == probeNotDue && s.pause == pauseNotDue
		}},
	{"no work is started beyond the limit", func(t terms, s situation, do step) bool {
		return do != stepWork || s.attempts < t.maxAttempts+s.granted
	}},
	{"no work is started while a refund is due", func(_ terms, s situation, do step) bool {
		return do != stepWork || s.refunded || !s.promisePassed
	}},
	{"the probe is asked only when it is due", func(_ terms, s situation, do step) bool {
		return do != stepProbe || s.probe == probeDue && s.ended == endingNone
	}},
	{"only an open job is refunded, recorded, parked, failed or canceled", func(_ terms, s situation, do step) bool {
		switch do {
		case stepRefund, stepRecord, stepPark, stepFail, stepCancel:
			return s.state.Open()
		}
		return true
	}},
	{"a refund has a cause", func(t terms, s situation, do step) bool {
		failed := t.refundOnFailure && (s.ended == endingFailed || s.ended == endingFatal)
		exhausted := s.attempts >= t.maxAttempts+s.granted && s.ended == endingNone && s.work == workNone
		due := !s.refunded && (s.promisePassed || s.cancelRequested || failed || exhausted)
		return do != stepRefund || due || s.cancelRequested && !s.cancelRecorded
	}},
	{"a refund that is due comes before everything but a delivery and the closing that refunds too",
		func(t terms, s situation, do step) bool {
			failed := t.refundOnFailure && (s.ended == endingFailed || s.ended == endingFatal)
			due := s.state.Open() && !s.delivery && !s.refunded && (s.promisePassed || s.cancelRequested || failed)
			return !due || do == stepRefund || do == stepFail
		}},
	{"a cancel is recorded before it has effects", func(_ terms, s situation, do step) bool {
		unrecorded := s.state.Open() && s.cancelRequested && !s.cancelRecorded && !s.delivery
		return !unrecorded || do == stepRefund
	}},
	{"only a fatal end fails the job, and a cancel comes before it", func(_ terms, s situation, do step) bool {
		fatal := s.state.Open() && s.ended == endingFatal && !s.cancelRequested && !s.delivery
		return fatal == (do == stepFail)
	}},
	{"an end is recorded, and only an end is", func(_ terms, s situation, do step) bool {
		return do != stepRecord || s.ended != endingNone
	}},
	{"an end in an open job is never slept on", func(_ terms, s situation, do step) bool {
		known := s.state.Open() && s.ended != endingNone
		return !known || do == stepSettle || do == stepFail || do == stepRefund || do == stepRecord
	}},
	{"a dead letter is refunded, used up and has nothing in flight", func(t terms, s situation, do step) bool {
		return do != stepPark || s.state == contract.StateRunning && s.refunded && s.work == workNone &&
			s.ended == endingNone && s.probe == probeNotDue && !s.cancelRequested &&
			s.attempts >= t.maxAttempts+s.granted
	}},
	{"a job is canceled when the cancel is recorded, the cost is back and nothing may deliver any more",
		func(_ terms, s situation, do step) bool {
			return do != stepCancel || s.cancelRequested && s.cancelRecorded && s.refunded &&
				s.work == workNone && !s.leftover && s.probe == probeNotDue && s.ended == endingNone
		}},
	{"work is asked to stop once, and only after a cancel or in a job that ended without it",
		func(_ terms, s situation, do step) bool {
			return do != stepStop || s.work == workRunning && (s.cancelRequested || !s.state.Open())
		}},
	{"a run ends when the job is closed and nothing in flight could change that", func(_ terms, s situation, do step) bool {
		still := s.state == contract.StateSucceeded || s.state == contract.StateDeclined ||
			s.work == workNone && !s.leftover
		return do != stepFinish || !s.state.Open() && still
	}},
	{"a wait has something that can end it", func(_ terms, s situation, do step) bool {
		if do != stepWait {
			return true
		}
		asked := s.probe == probeAsking || s.probe == probePausing
		return s.work == workStopping ||
			s.work == workRunning && s.state.Open() && !s.cancelRequested ||
			s.leftover && (s.cancelRequested || !s.state.Open()) ||
			asked && s.work == workNone && s.state.Open() ||
			s.pause == pauseRunning && s.state == contract.StateRunning && !s.cancelRequested ||
			s.state == contract.StateDeadLetter && !s.cancelRequested
	}},
}

func TestEveryLawHoldsInEverySituation(t *testing.T) {
	count, seen := 0, map[step]bool{}
	broken := make([]int, len(laws))
	everySituation(func(terms terms, s situation) {
		count++
		do := next(terms, s)
		seen[do] = true
		for i := range laws {
			if !laws[i].holds(terms, s, do) {
				if broken[i]++; broken[i] == 1 {
					t.Errorf("%s: broken by step %d\nterms %+v\nsituation %+v", laws[i].name, do, terms, s)
				}
			}
		}
	})
	assert.Greater(t, count, 1_000_000)
	assert.Len(t, seen, int(stepFinish)+1, "every step of the chart is reached")
}

func TestTheStateChartsArrows(t *testing.T) {
	standard := terms{refundOnFailure: true, maxAttempts: 3}
	patient := terms{refundOnFailure: false, maxAttempts: 3}
	running, dead := contract.StateRunning, contract.StateDeadLetter
	for _, arrow := range []struct {
		name  string
		terms terms
		s     situation
		want  step
	}{
		{"charged: work begins", standard, situation{state: running}, stepWork},
		{"work in flight: wait", standard, situation{state: running, work: workRunning}, stepWait},
		{"delivered on time", standard, situation{state: running, delivery: true}, stepSettle},
		{"promise passes: refund, the work goes on", standard,
			situation{state: running, work: workRunning, promisePassed: true}, stepRefund},
		{"refunded: wait for the late success", standard,
			situation{state: running, work: workRunning, promisePassed: true, refunded: true}, stepWait},
		{"promise and delivery together: success wins", standard,
			situation{state: running, promisePassed: true, delivery: true}, stepSettle},
		{"late delivery after the refund", standard,
			situation{state: running, promisePassed: true, refunded: true, delivery: true}, stepSettle},

		{"failed: refund at once", standard, situation{state: running, ended: endingFailed}, stepRefund},
		{"failed again, refunded before: record", standard,
			situation{state: running, ended: endingFailed, refunded: true, attempts: 1}, stepRecord},
		{"failed, refundOnFailure false: record", patient, situation{state: running, ended: endingFailed}, stepRecord},
		{"failed after the promise, refundOnFailure false: refund", patient,
			situation{state: running, ended: endingFailed, promisePassed: true}, stepRefund},
		{"recorded: pause", standard, situation{state: running, attempts: 1, refunded: true, pause: pauseDue}, stepPause},
		{"pausing: wait", standard, situation{state: running, attempts: 1, refunded: true, pause: pauseRunning}, stepWait},
		{"promise passes in the pause: refund", patient,
			situation{state: running, attempts: 1, pause: pauseRunning, promisePassed: true}, stepRefund},
		{"pause over: next attempt", standard, situation{state: running, attempts: 1, refunded: true}, stepWork},

		{"unknown: record, no refund", standard, situation{state: running, ended: endingUnknown}, stepRecord},
		{"unknown after the promise: refund", standard,
			situation{state: running, ended: endingUnknown, promisePassed: true}, stepRefund},
		{"unknown recorded: ask the probe before anything runs", standard,
			situation{state: running, attempts: 1, probe: probeDue, pause: pauseDue}, stepProbe},
		{"unknown on the last attempt: ask the probe before giving up", standard,
			situation{state: running, attempts: 3, probe: probeDue, pause: pauseDue}, stepProbe},
		{"probe asked: wait", standard, situation{state: running, attempts: 1, probe: probeAsking}, stepWait},
		{"probe saw it running: wait", standard, situation{state: running, attempts: 1, probe: probePausing}, stepWait},
		{"promise passes while the probe is asked: refund", standard,
			situation{state: running, attempts: 1, probe: probeAsking, promisePassed: true}, stepRefund},
		{"probe does not know: pause, then the next attempt", standard,
			situation{state: running, attempts: 1, pause: pauseDue}, stepPause},

		{"attempts used up: refund", patient, situation{state: running, attempts: 3, pause: pauseDue}, stepRefund},
		{"attempts used up and refunded: dead letter", standard,
			situation{state: running, attempts: 3, refunded: true, pause: pauseDue}, stepPark},
		{"dead letter: wait for a person", standard, situation{state: dead, attempts: 3, refunded: true}, stepWait},
		{"retry granted: next attempt", standard,
			situation{state: running, attempts: 3, granted: 1, refunded: true}, stepWork},
		{"retry granted, last outcome unknown: ask the probe first", standard,
			situation{state: running, attempts: 3, granted: 1, refunded: true, probe: probeDue}, stepProbe},
		{"granted attempts used up: dead letter again", standard,
			situation{state: running, attempts: 4, granted: 1, refunded: true}, stepPark},
		{"a dead letter delivers after all", standard,
			situation{state: dead, attempts: 3, refunded: true, delivery: true}, stepSettle},

		{"fatal: close as failed", standard, situation{state: running, ended: endingFatal}, stepFail},
		{"failed and closed: answer", standard, situation{state: contract.StateFailed, refunded: true}, stepFinish},
		{"failed, a superseded attempt not ended: wait", standard,
			situation{state: contract.StateFailed, refunded: true, leftover: true}, stepWait},
		{"failed, the superseded attempt delivers", standard,
			situation{state: contract.StateFailed, refunded: true, delivery: true}, stepSettle},

		{"canceled in flight: refund", standard,
			situation{state: running, cancelRequested: true, work: workRunning}, stepRefund},
		{"cancel recorded: ask the work to stop", standard, situation{state: running, refunded: true,
			cancelRequested: true, cancelRecorded: true, work: workRunning}, stepStop},
		{"asked to stop: wait for the real end", standard, situation{state: running, refunded: true,
			cancelRequested: true, cancelRecorded: true, work: workStopping}, stepWait},
		{"stopped: close as canceled", standard, situation{state: running, refunded: true, attempts: 1,
			cancelRequested: true, cancelRecorded: true, pause: pauseDue}, stepCancel},
		{"delivered although canceled", standard, situation{state: running, refunded: true,
			cancelRequested: true, cancelRecorded: true, delivery: true}, stepSettle},
		{"canceled, outcome unknown: ask the probe before closing", standard, situation{state: running, refunded: true,
			attempts: 1, cancelRequested: true, cancelRecorded: true, probe: probeDue}, stepProbe},
		{"canceled, a superseded attempt not ended: wait", standard, situation{state: running, refunded: true,
			cancelRequested: true, cancelRecorded: true, leftover: true}, stepWait},
		{"canceled in the pause", standard, situation{state: running, refunded: true, attempts: 1,
			cancelRequested: true, cancelRecorded: true, pause: pauseRunning}, stepCancel},
		{"dead letter canceled: record it", standard,
			situation{state: dead, attempts: 3, refunded: true, cancelRequested: true}, stepRefund},
		{"dead letter canceled and recorded: close", standard, situation{state: dead, attempts: 3, refunded: true,
			cancelRequested: true, cancelRecorded: true}, stepCancel},
		{"fatal after a cancel: canceled, not failed", standard, situation{state: running, refunded: true,
			cancelRequested: true, cancelRecorded: true, ended: endingFatal}, stepRecord},

		{"written off in flight: ask the work to stop", standard,
			situation{state: contract.StateWrittenOff, refunded: true, work: workRunning}, stepStop},
		{"written off, stopping: wait", standard,
			situation{state: contract.StateWrittenOff, refunded: true, work: workStopping}, stepWait},
		{"written off, ended: answer", standard,
			situation{state: contract.StateWrittenOff, refunded: true, ended: endingFailed}, stepFinish},
		{"written off, delivered after all", standard,
			situation{state: contract.StateWrittenOff, refunded: true, delivery: true}, stepSettle},

		{"succeeded: answer", standard, situation{state: contract.StateSucceeded}, stepFinish},
		{"succeeded by a person, work still in flight: answer", standard,
			situation{state: contract.StateSucceeded, work: workRunning}, stepFinish},
		{"declined: answer", standard, situation{state: contract.StateDeclined}, stepFinish},
		{"taken up, promise over: refund first", standard,
			situation{state: running, attempts: 1, promisePassed: true, probe: probeDue}, stepRefund},
		{"taken up with a recorded cancel: ask the probe", standard, situation{state: running, refunded: true,
			cancelRequested: true, cancelRecorded: true, probe: probeDue}, stepProbe},
	} {
		t.Run(arrow.name, func(t *testing.T) {
			require.Equal(t, arrow.want, next(arrow.terms, arrow.s))
		})
	}
}
