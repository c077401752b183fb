// Package render is an example of metered work: ordinary Temporal activities, as a product team
// would write them, that take minutes, cost a customer credits and must not run twice for one charge.
//
// It knows nothing of Reclaim beyond the two JSON arguments that a metered job hands to its work, so
// the same worker could be written in any language with a Temporal SDK. What makes it good metered
// work is worth copying:
//
//   - a finished result is kept with the idempotency key it was made under, and an attempt that comes
//     again with that key is answered from it;
//   - a probe says what became of a job by looking where results are kept, never by guessing;
//   - it heartbeats, stops when it is canceled, and says by the kind of its error whether trying
//     again can help.
package render

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
)

// Types of the application errors that the activities return. Only BadScene is non-retryable: every
// other one means that this attempt failed and that another may succeed.
const (
	// BadScene means that the arguments are wrong or that the scene can never be rendered.
	BadScene = "BadScene"
	// StudioDown means that the file named by Input.FailWhile exists.
	StudioDown = "StudioDown"
	// RenderFailed means that the attempt was one of the first Input.FailAttempts ones.
	RenderFailed = "RenderFailed"
	// Interrupted means that the rendering was stopped by something other than a cancellation or its
	// deadline: most often a worker that shut down. Nothing was delivered.
	Interrupted = "Interrupted"
)

// States that ProbeFractal answers.
const (
	// StateSucceeded means that a finished result of the job is stored.
	StateSucceeded = "succeeded"
	// StateRunning means that the job is being rendered now.
	StateRunning = "running"
	// StateUnknown means that there is no trace of the job, or only that of a rendering that died.
	StateUnknown = "unknown"
)

// Meta identifies the metered job and the attempt; it is the second argument of the work and the only
// one of the probe.
type Meta struct {
	// Tenant is the tenant that is charged.
	Tenant string `json:"tenant"`
	// JobID is unique within the tenant.
	JobID string `json:"jobId"`
	// Attempt counts from 1.
	Attempt int `json:"attempt"`
	// PromiseDeadline is the time (RFC 3339) at which the customer is refunded if nothing has been
	// delivered. The work goes on after it: a late result is still wanted.
	PromiseDeadline string `json:"promiseDeadline"`
	// IdempotencyKey stays the same while it is unknown what became of the previous attempt, and
	// changes once that is known to have failed.
	IdempotencyKey string `json:"idempotencyKey"`
}

// Output is the result of a rendering. The picture itself stays in storage: a workflow's history is no
// place for it.
type Output struct {
	// File is the path of the PNG relative to the results directory, with forward slashes.
	File string `json:"file"`
	// Width is in pixels.
	Width int `json:"width"`
	// Height is in pixels.
	Height int `json:"height"`
	// Bytes is the size of the file.
	Bytes int64 `json:"bytes"`
	// SHA256 is the digest of the file in lower-case hexadecimal.
	SHA256 string `json:"sha256"`
}

// ProbeAnswer is what became of a job.
type ProbeAnswer struct {
	// State is one of StateSucceeded, StateRunning and StateUnknown.
	State string `json:"state"`
	// Output is the stored result, with StateSucceeded only.
	Output *Output `json:"output,omitempty"`
}

// Progress is what RenderFractal reports in its heartbeats.
type Progress struct {
	// RowsDone counts the finished rows; 0 also while the attempt waits for an earlier one.
	RowsDone int `json:"rowsDone"`
	// Rows is the height of the picture.
	Rows int `json:"rows"`
}

// tick is how often a waiting attempt looks up: short enough for the shortest sensible heartbeat
// timeout, and for a cancellation to be noticed at once.
const tick = 200 * time.Millisecond

// Studio renders scenes and keeps the results in a directory. Its methods are the activities; they may
// run concurrently, and several workers may share the directory.
type Studio struct {
	dir string
	// claims makes looking at a marker and taking it over one step within this process.
	claims sync.Mutex
}

// NewStudio returns a studio that keeps its results in resultsDir, which it makes if need be. It
// returns an error when the directory cannot be made.
func NewStudio(resultsDir string) (*Studio, error) {
	if err := os.MkdirAll(resultsDir, 0o755); err != nil {
		return nil, fmt.Errorf("make the results directory: %w", err)
	}
	return &Studio{dir: resultsDir}, nil
}

// RenderFractal is the metered work: it renders the scene to a PNG and returns where it is.
//
// An attempt whose result is already stored under the same idempotency key gets that result and
// renders nothing; an attempt that finds the job being rendered waits for that to end first.
//
// Errors are application errors of the types listed above, the context's error when the activity was
// canceled or passed its deadline, or a (retryable) description of what the studio could not do.
func (s *Studio) RenderFractal(ctx context.Context, in Input, meta Meta) (Output, error) {
	if err := meta.checkAttempt(); err != nil {
		return Output{}, badScene(err)
	}
	if err := in.check(); err != nil {
		return Output{}, badScene(err)
	}
	if in.NeverSucceeds {
		return Output{}, badScene(errors.New("neverSucceeds is set: this scene cannot be rendered"))
	}
	// Before anything that may fail: what has been delivered stays delivered.
	if out, found, err := s.storedUnder(meta); err != nil || found {
		return out, err
	}
	if err := s.checkUp(in.FailWhile); err != nil {
		return Output{}, err
	}
	if meta.Attempt <= in.FailAttempts {
		return Output{}, temporal.NewApplicationError(
			fmt.Sprintf("attempt %d fails as asked (failAttempts is %d)", meta.Attempt, in.FailAttempts), RenderFailed)
	}

	beats := startHeartbeats(ctx)
	defer beats.stop()
	mark, err := s.claim(ctx, meta, func() { beats.send(Progress{Rows: in.Height}) })
	if err != nil {
		return Output{}, err
	}
	defer mark.release()
	// The attempt that was waited for may have delivered.
	if out, found, err := s.storedUnder(meta); err != nil || found {
		return out, err
	}

	if err := s.logRun(meta, "started"); err != nil {
		return Output{}, err
	}
	out, err := s.render(ctx, in, meta, func(rowsDone int) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		beats.send(Progress{RowsDone: rowsDone, Rows: in.Height})
		return mark.refresh()
	})
	if err != nil {
		if ctx.Err() != nil {
			return Output{}, stopped(ctx)
		}
		return Output{}, err
	}
	if err := s.logRun(meta, "finished"); err != nil {
		// The result is stored: failing now would have it rendered again.
		activity.GetLogger(ctx).Warn("The run is missing in the log.", "error", err)
	}
	return out, nil
}

// ProbeFractal says what became of a job, whatever the attempt, by looking where results are kept. It
// returns a BadScene error when meta does not name a job, and another error when the results cannot be
// read: that is not the same as finding nothing.
func (s *Studio) ProbeFractal(_ context.Context, meta Meta) (ProbeAnswer, error) {
	if err := meta.checkJob(); err != nil {
		return ProbeAnswer{}, badScene(err)
	}
	// The marker first: it is removed after the result is stored, so a job that finishes between the
	// two looks is seen as succeeded and never as unknown.
	running, err := isFresh(s.markerPath(meta))
	if err != nil {
		return ProbeAnswer{}, err
	}
	result, found, err := s.stored(meta)
	switch {
	case err != nil:
		return ProbeAnswer{}, err
	case found:
		out := s.output(meta, result)
		return ProbeAnswer{State: StateSucceeded, Output: &out}, nil
	case running:
		return ProbeAnswer{State: StateRunning}, nil
	}
	return ProbeAnswer{State: StateUnknown}, nil
}

// render computes the picture row by row, no faster than in.SlowMs asks, and stores it. It calls
// advance after each row and now and then in between, and stops with its error.
func (s *Studio) render(ctx context.Context, in Input, meta Meta, advance func(rowsDone int) error) (Output, error) {
	start := time.Now()
	slow := time.Duration(in.SlowMs) * time.Millisecond
	img := newPicture(in)
	for y := range in.Height {
		if err := advance(y); err != nil {
			return Output{}, err
		}
		renderRow(img, in, y)
		rowDue := start.Add(slow * time.Duration(y+1) / time.Duration(in.Height))
		for wait := time.Until(rowDue); wait > 0; wait = time.Until(rowDue) {
			select {
			case <-ctx.Done():
			case <-time.After(min(wait, tick)):
			}
			if err := advance(y); err != nil {
				return Output{}, err
			}
		}
	}
	return s.store(meta, img, func() error { return advance(in.Height) })
}

// checkUp returns a StudioDown error while a file of that name is in the results directory.
func (s *Studio) checkUp(failWhile string) error {
	if failWhile == "" {
		return nil
	}
	switch _, err := os.Stat(filepath.Join(s.dir, failWhile)); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look for the failWhile file: %w", err)
	}
	return temporal.NewApplicationError(fmt.Sprintf("the studio is down while the file %q exists", failWhile), StudioDown)
}

// badScene makes err a non-retryable application error.
func badScene(err error) error {
	return temporal.NewNonRetryableApplicationError(err.Error(), BadScene, err)
}

// stopped is the error for a context that ended. Temporal records a cancel only for a cancellation
// that it asked for itself; for the other ends, such as a worker shutting down, an error that names
// the reason is more use than "context canceled".
func stopped(ctx context.Context) error {
	cause := context.Cause(ctx)
	if temporal.IsCanceledError(cause) || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ctx.Err()
	}
	return temporal.NewApplicationError("the rendering was stopped before its end: "+cause.Error(), Interrupted)
}

// heartbeats sends progress from a goroutine of its own. RecordHeartbeat blocks while Temporal cannot
// be reached; called between rows it would stall the rendering during an outage.
type heartbeats struct {
	latest chan Progress
	done   chan struct{}
}

func startHeartbeats(ctx context.Context) *heartbeats {
	h := &heartbeats{latest: make(chan Progress, 1), done: make(chan struct{})}
	go func() {
		defer close(h.done)
		for p := range h.latest {
			activity.RecordHeartbeat(ctx, p)
		}
	}()
	return h
}

// send hands p over, or drops it when the previous one is still on its way: the next row brings news.
func (h *heartbeats) send(p Progress) {
	select {
	case h.latest <- p:
	default:
	}
}

// stop waits for a heartbeat under way, so that none comes after the activity's answer.
func (h *heartbeats) stop() {
	close(h.latest)
	<-h.done
}
