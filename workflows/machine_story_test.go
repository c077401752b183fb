package workflows

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// story plays one job: next decides, the book stands in for Postgres, and the test decides what happens in the world.
type story struct {
	t     *rapid.T
	terms terms
	probe bool
	key   activities.JobKey
	book  *book
	row   activities.JobRow
	runs  int

	flying     []*flight
	delivery   int
	ended      ending
	endedWhich int
	probing    probing
	pausing    pausing
	inDoubt    int
	asked      bool
	promise    bool
	over       bool
	resolved   int
}

type flight struct {
	number               int
	stopping, superseded bool
}

const noDelivery = -1

// begin starts a run with no memory, as after a crash: it charges the job or takes the row up.
func (s *story) begin() {
	s.runs++
	s.flying, s.delivery, s.ended, s.probing, s.pausing, s.inDoubt = nil, noDelivery, endingNone, probeNotDue, pauseNotDue, 0
	s.asked, s.promise, s.over = false, s.promise && s.runs > 1, false
	answer := s.book.charge(activities.ChargeRequest{JobKey: s.key, Account: "team", Cost: 40, Fingerprint: "f", Spec: "{}"})
	s.row = answer.Row
	if answer.Verdict == activities.Already && s.row.State.Open() {
		switch {
		case s.row.KeyAttempt <= s.row.Attempts:
			s.inDoubt = s.row.Attempts
		case s.row.State == contract.StateRunning:
			s.inDoubt = s.row.Attempts + 1
		}
		if s.row.State == contract.StateRunning && s.probe {
			s.probing = probeDue
		}
	}
	s.run()
}

func (s *story) situation() situation {
	state := s.row.State
	if state == "" {
		state = contract.StateDeclined
	}
	view := situation{
		state: state, refunded: s.row.Refunded, attempts: s.row.Attempts, granted: s.row.Granted,
		cancelRecorded: s.row.CancelRequested, cancelRequested: s.row.CancelRequested || s.asked,
		promisePassed: s.promise, delivery: s.delivery != noDelivery, ended: s.ended, probe: s.probing, pause: s.pausing,
	}
	for _, f := range s.flying {
		switch {
		case f.superseded:
			view.leftover = true
		case f.stopping:
			view.work = workStopping
		default:
			view.work = workRunning
		}
	}
	return view
}

// run follows next until it waits or finishes.
func (s *story) run() {
	for range 50 {
		view := s.situation()
		do := next(s.terms, view)
		if do == stepWait {
			return
		}
		if do == stepFinish {
			s.over = true
			return
		}
		s.take(do, view)
		if broken := s.book.broken(s.key); broken != "" {
			s.t.Fatalf("after step %d in %+v: %s", do, view, broken)
		}
	}
	s.t.Fatalf("the machine does not come to rest: %+v", s.situation())
}

func (s *story) take(do step, view situation) {
	ended := activities.EndedAttempt{
		Attempt: s.endedWhich, Failed: s.ended == endingFailed || s.ended == endingFatal, Error: "e",
	}
	if s.ended == endingNone {
		ended = activities.EndedAttempt{}
	}
	switch do {
	case stepSettle:
		s.row = s.book.settle(activities.SettleRequest{JobKey: s.key, Attempt: s.delivery}).Row
		s.delivery, s.ended = noDelivery, endingNone
	case stepRefund:
		s.row = s.book.refund(activities.RefundRequest{JobKey: s.key, Reason: "r", Ended: ended, Cancel: view.cancelRequested}).Row
		s.ended = endingNone
	case stepRecord:
		s.row = s.book.record(activities.RecordRequest{JobKey: s.key, Ended: ended}).Row
		s.ended = endingNone
	case stepFail:
		s.row = s.book.close(activities.CloseRequest{JobKey: s.key, State: contract.StateFailed, Ended: ended}).Row
		s.ended = endingNone
	case stepCancel:
		s.row = s.book.close(activities.CloseRequest{JobKey: s.key, State: contract.StateCanceled}).Row
	case stepPark:
		answer := s.book.park(activities.ParkRequest{JobKey: s.key, MaxAttempts: s.terms.maxAttempts})
		s.row = answer.Row
		require.Equal(s.t, activities.Applied, answer.Verdict, "the machine parked what may not be parked: %s", answer.Why)
	case stepStop:
		for _, f := range s.flying {
			f.stopping = true
		}
	case stepProbe:
		s.probing = probeAsking
	case stepPause:
		s.pausing = pauseRunning
	case stepWork:
		s.flying = append(s.flying, &flight{number: s.row.Attempts + 1})
		s.pausing, s.probing, s.inDoubt = pauseNotDue, probeNotDue, 0
	default:
		s.t.Fatalf("step %d cannot be taken", do)
	}
}

func (s *story) deliver(attempt int) {
	if s.delivery == noDelivery {
		s.delivery = attempt
	}
}

func (s *story) end(attempt int, how ending) {
	s.ended, s.endedWhich, s.pausing, s.inDoubt, s.probing = how, attempt, pauseDue, 0, probeNotDue
	if how == endingUnknown {
		s.inDoubt = attempt
		if s.probe {
			s.probing = probeDue
		}
	}
}

// land ends an attempt in flight; how is endingNone for a delivery.
func (s *story) land(f *flight, how ending) {
	s.flying = slices.DeleteFunc(s.flying, func(other *flight) bool { return other == f })
	switch {
	case how == endingNone:
		s.deliver(f.number)
	case !f.superseded:
		s.end(f.number, how)
	}
	s.run()
}

func (s *story) probeAnswers(state contract.ProbeState) {
	s.probing = probeNotDue
	switch state {
	case contract.ProbeSucceeded:
		s.deliver(s.inDoubt)
	case contract.ProbeFailed:
		s.end(s.inDoubt, endingFailed)
	case contract.ProbeRunning:
		s.probing = probePausing
	}
	s.run()
}

// report is an outcome from outside; a closed job's starts a run of its own.
func (s *story) report(attempt int, state contract.OutcomeState) {
	if s.over {
		s.begin()
	}
	if s.row.State == "" {
		return
	}
	var current *flight
	for _, f := range s.flying {
		if !f.superseded {
			current = f
		}
	}
	switch {
	case state == contract.OutcomeSucceeded && s.row.State != contract.StateSucceeded:
		s.deliver(attempt)
	case state == contract.OutcomeFailed && current != nil && (attempt == 0 || attempt == current.number):
		current.superseded = true
		s.end(current.number, endingFailed)
	}
	s.run()
}

func (s *story) resolve(action contract.Action, attempts int) {
	if s.over {
		s.begin()
	}
	if s.row.State == "" {
		return
	}
	s.resolved++
	answer := s.book.resolve(activities.ResolveRequest{JobKey: s.key, RecordRefusal: true, Resolution: contract.Resolution{
		ID: fmt.Sprint("r", s.resolved), Action: action, Attempts: attempts, Operator: "o",
	}})
	s.row = answer.Row
	if answer.Verdict == activities.Applied && action == contract.ActionRetry {
		s.pausing = pauseNotDue
		if s.inDoubt > 0 && s.probe {
			s.probing = probeDue
		}
	}
	s.run()
}

func (s *story) check() {
	if broken := s.book.broken(s.key); broken != "" {
		s.t.Fatal(broken)
	}
	if kept, known := s.book.jobs[s.key]; known {
		require.Equal(s.t, s.book.row(kept), s.row, "the run's copy of the row is the last answer")
	}
	if s.over || s.row.State == contract.StateDeadLetter {
		return
	}
	waits := len(s.flying) > 0 || s.probing == probeAsking || s.probing == probePausing || s.pausing == pauseRunning
	require.True(s.t, waits, "an open job waits for nothing: %+v", s.situation())
	require.True(s.t, !s.promise || s.row.Refunded, "the promise has passed and the customer is not refunded")
}

// finish lets everything that is outstanding end, as it must in the world, and counts how long that takes.
func (s *story) finish() {
	for range 1000 {
		switch {
		case s.over:
			require.False(s.t, s.row.State.Open(), "the run ended and the job is open")
			return
		case len(s.flying) > 0:
			s.land(s.flying[0], endingUnknown)
		case s.probing == probeAsking:
			s.probeAnswers(contract.ProbeUnknown)
		case s.probing == probePausing:
			s.probing = probeDue
			s.run()
		case s.pausing == pauseRunning:
			s.pausing = pauseNotDue
			s.run()
		case s.row.State == contract.StateDeadLetter:
			s.resolve(contract.ActionWriteOff, 0)
		default:
			s.t.Fatalf("stuck: %+v", s.situation())
		}
		s.check()
	}
	s.t.Fatal("the job does not end although everything around it does")
}

func TestWhateverHappensInWhateverOrderTheMoneyIsRightAndTheJobEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &story{
			t:     t,
			terms: terms{rapid.Bool().Draw(t, "refundOnFailure"), rapid.IntRange(1, 3).Draw(t, "maxAttempts")},
			probe: rapid.Bool().Draw(t, "probe"), key: activities.JobKey{Tenant: "acme", JobID: "j1"},
			book: newBook(func() time.Time { return time.Unix(0, 0) }),
		}
		s.book.balances["team"] = rapid.SampledFrom([]int64{100, 100, 100, 40, 39, -1}).Draw(t, "balance")
		s.begin()
		pick := func() *flight {
			if s.over || len(s.flying) == 0 {
				t.Skip("nothing is in flight")
			}
			return rapid.SampledFrom(s.flying).Draw(t, "attempt")
		}
		open := func(is bool) {
			if s.over || !is {
				t.Skip("not now")
			}
		}
		number := rapid.IntRange(0, 4)
		t.Repeat(map[string]func(*rapid.T){
			"":                func(*rapid.T) { s.check() },
			"work succeeds":   func(*rapid.T) { s.land(pick(), endingNone) },
			"work fails":      func(*rapid.T) { s.land(pick(), endingFailed) },
			"work fails fast": func(*rapid.T) { s.land(pick(), endingFatal) },
			"work is lost":    func(*rapid.T) { s.land(pick(), endingUnknown) },
			"promise passes":  func(*rapid.T) { open(!s.promise); s.promise = true; s.run() },
			"cancel":          func(*rapid.T) { open(!s.asked); s.asked = true; s.run() },
			"pause ends":      func(*rapid.T) { open(s.pausing == pauseRunning); s.pausing = pauseNotDue; s.run() },
			"probe again":     func(*rapid.T) { open(s.probing == probePausing); s.probing = probeDue; s.run() },
			"probe answers": func(t *rapid.T) {
				open(s.probing == probeAsking)
				s.probeAnswers(rapid.SampledFrom([]contract.ProbeState{
					contract.ProbeSucceeded, contract.ProbeFailed, contract.ProbeRunning, contract.ProbeUnknown,
				}).Draw(t, "answer"))
			},
			"success reported": func(t *rapid.T) { s.report(number.Draw(t, "attempt"), contract.OutcomeSucceeded) },
			"failure reported": func(t *rapid.T) { s.report(number.Draw(t, "attempt"), contract.OutcomeFailed) },
			"retry":            func(t *rapid.T) { s.resolve(contract.ActionRetry, rapid.IntRange(1, 2).Draw(t, "grants")) },
			"deliver":          func(*rapid.T) { s.resolve(contract.ActionDeliver, 0) },
			"write off":        func(*rapid.T) { s.resolve(contract.ActionWriteOff, 0) },
			"crash":            func(*rapid.T) { open(true); s.begin() },
			"submitted again": func(t *rapid.T) {
				if !s.over {
					t.Skip("its run is open")
				}
				before := s.row
				s.begin()
				require.Equal(t, before, s.row)
			},
		})
		s.finish()
	})
}
