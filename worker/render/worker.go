package render

import (
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
)

// Names of the activities: the job's work.activity and work.probe.
const (
	// ActivityName is the work, Studio.RenderFractal.
	ActivityName = "RenderFractal"
	// ProbeName is the probe, Studio.ProbeFractal.
	ProbeName = "ProbeFractal"
)

// RPCTimeout is what to give client.Options.RPCTimeout for the client that a work worker runs on.
//
// When an activity has ended, its worker tells Temporal so, and tries for that long when Temporal
// cannot be reached. The default is 10 seconds: in any longer outage the answer is dropped, finished
// and paid work is taken for lost after its timeout, and runs again.
const RPCTimeout = 5 * time.Minute

const (
	// Process managers usually give 30 seconds before they kill.
	stopTimeout       = 20 * time.Second
	heartbeatInterval = time.Second
	// Each rendering may hold a picture of 64 MB; the SDK's default allows 1,000 at once.
	maxConcurrentRenderings = 100
)

// Register registers the studio's activities under ActivityName and ProbeName.
func Register(r worker.ActivityRegistry, s *Studio) {
	r.RegisterActivityWithOptions(s.RenderFractal, activity.RegisterOptions{Name: ActivityName})
	r.RegisterActivityWithOptions(s.ProbeFractal, activity.RegisterOptions{Name: ProbeName})
}

// NewWorker returns a worker, not yet started, that does the studio's work on a task queue: the job's
// work.taskQueue.
//
// Make the client with client.Options{RPCTimeout: RPCTimeout}: the worker cannot set it, and without
// it an outage of more than 10 seconds makes finished work run again.
//
// Stopping the worker gives renderings 20 seconds to finish; then they fail as Interrupted, or are lost
// if the process exits before they have said so. A cancellation reaches a rendering within about a
// second.
func NewWorker(c client.Client, taskQueue string, studio *Studio) worker.Worker {
	w := worker.New(c, taskQueue, worker.Options{
		MaxConcurrentActivityExecutionSize: maxConcurrentRenderings,
		// The default of 0 would stop every rendering at once, and answers could not be sent any more.
		WorkerStopTimeout: stopTimeout,
		// A cancellation comes back with a heartbeat, and without a heartbeat timeout the SDK sends one
		// only every 30 seconds.
		DefaultHeartbeatThrottleInterval: heartbeatInterval,
		MaxHeartbeatThrottleInterval:     heartbeatInterval,
		// The activities have names of their own choosing, which Go function names must not shadow.
		DisableRegistrationAliasing: true,
	})
	Register(w, studio)
	return w
}
