package workflows

import "github.com/reclaimhq/reclaim/workflows/contract"

// step is what a job does next.
type step int

const (
	// stepWait: nothing to do until something happens.
	stepWait step = iota
	// stepSettle: tell Postgres of a delivery.
	stepSettle
	// stepRefund: give the cost back, and record the ended attempt and the cancel with it.
	stepRefund
	// stepRecord: count an ended attempt that moves no money.
	stepRecord
	// stepFail: close as failed.
	stepFail
	// stepCancel: close as canceled.
	stepCancel
	// stepPark: become a dead letter.
	stepPark
	// stepStop: ask the work to stop.
	stepStop
	// stepProbe: ask the probe.
	stepProbe
	// stepPause: start the backoff before the next attempt.
	stepPause
	// stepWork: start the next attempt.
	stepWork
	// stepFinish: answer and return.
	stepFinish
)

// ending is how an attempt ended that Postgres has not been told of yet.
type ending int

const (
	endingNone ending = iota
	// endingFailed: the attempt certainly delivered nothing.
	endingFailed
	// endingFatal: and the work says that no attempt ever will.
	endingFatal
	// endingUnknown: the attempt may have delivered.
	endingUnknown
)

// activityState is where a piece of work stands.
type activityState int

const (
	workNone activityState = iota
	workRunning
	// workStopping: it was asked to stop and its real end is awaited.
	workStopping
)

// probing is where the question to the probe stands.
type probing int

const (
	probeNotDue probing = iota
	probeDue
	probeAsking
	// probePausing: the probe saw the work running and is asked again after a pause.
	probePausing
)

// pausing is where the backoff between two attempts stands.
type pausing int

const (
	pauseNotDue pausing = iota
	pauseDue
	pauseRunning
)

// terms are the parts of a job's input that the rules need.
type terms struct {
	refundOnFailure bool
	maxAttempts     int
}

// situation is everything that the next step depends on: the row as Postgres last answered it, and what the run
// remembers.
type situation struct {
	state           contract.JobState
	refunded        bool
	attempts        int
	granted         int
	cancelRecorded  bool
	cancelRequested bool
	promisePassed   bool
	delivery        bool
	ended           ending
	work            activityState
	// leftover is true while an attempt that no longer counts has not really ended: it may still deliver.
	leftover bool
	probe    probing
	pause    pausing
}

// next returns the step that the rules of a metered job prescribe. It is total: every situation has a step.
func next(t terms, s situation) step {
	if s.delivery {
		return stepSettle
	}
	if s.state == contract.StateSucceeded || s.state == contract.StateDeclined {
		return stepFinish
	}
	if !s.state.Open() {
		return whenEnded(s, stepFinish)
	}
	if s.ended == endingFatal && !s.cancelRequested {
		return stepFail
	}
	if refundDue(t, s) || s.cancelRequested && !s.cancelRecorded {
		return stepRefund
	}
	if s.ended != endingNone {
		return stepRecord
	}
	if s.cancelRequested {
		if s.work == workNone && s.probe != probeNotDue {
			return whenProbed(s)
		}
		return whenEnded(s, stepCancel)
	}
	if s.state == contract.StateDeadLetter || s.work != workNone {
		return stepWait
	}
	if s.probe != probeNotDue {
		return whenProbed(s)
	}
	if s.attempts >= t.maxAttempts+s.granted {
		if !s.refunded {
			return stepRefund
		}
		return stepPark
	}
	switch s.pause {
	case pauseDue:
		return stepPause
	case pauseRunning:
		return stepWait
	default:
		return stepWork
	}
}

// refundDue says whether the customer's money must go back now. Exhausted attempts come later in next: an unknown last
// outcome is probed first.
func refundDue(t terms, s situation) bool {
	failed := s.ended == endingFailed || s.ended == endingFatal
	return !s.refunded && (s.promisePassed || s.cancelRequested || failed && t.refundOnFailure)
}

// whenEnded asks the work to stop, waits for its real end, and then takes the given step.
func whenEnded(s situation, then step) step {
	switch {
	case s.work == workRunning:
		return stepStop
	case s.work == workStopping || s.leftover:
		return stepWait
	default:
		return then
	}
}

// whenProbed asks the probe, or waits while it is being asked or paused.
func whenProbed(s situation) step {
	if s.probe == probeDue {
		return stepProbe
	}
	return stepWait
}
