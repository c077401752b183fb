package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/reclaimhq/reclaim/worker/devstack"
	"github.com/reclaimhq/reclaim/worker/render"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// scene is one story about one job, and how it must end.
type scene struct {
	title string
	job   contract.Job
	play  func(context.Context, *stage, contract.Job) error
	// entries are the types of the job's ledger entries in order; each amount is the job's cost.
	entries []string
	state   contract.JobState
	notice  string
}

// downFile stops the studio from rendering while it exists in the results folder.
const downFile = "studio-down"

func scenes() []scene {
	return []scene{
		{
			title:   "Delivered on time",
			job:     picture("on-time", 600, 400, nil),
			play:    submitAndAwait,
			entries: []string{"charge"},
			state:   contract.StateSucceeded,
			notice:  "one charge, and the picture is in the results folder.",
		},
		{
			title: "Late success: the work takes 4 s, but 2 s were promised",
			job: picture("late", 640, 480, func(in *render.Input, job *contract.Job) {
				in.SlowMs, job.Promise = 4000, seconds(2)
			}),
			play:    submitAndAwait,
			entries: []string{"charge", "refund", "reclaim"},
			state:   contract.StateSucceeded,
			notice:  "refunded when the promise passed, reclaimed when the picture came after all: paid once.",
		},
		{
			title: "The work fails twice, then succeeds",
			job: picture("third-time", 500, 500, func(in *render.Input, _ *contract.Job) {
				in.FailAttempts = 2
			}),
			play:    submitAndAwait,
			entries: []string{"charge", "refund", "reclaim"},
			state:   contract.StateSucceeded,
			notice:  "refunded at the first failure, not at the second again, and reclaimed on delivery.",
		},
		{
			title: "The work always fails, until a person repairs the studio and grants a retry",
			job: picture("dead-letter", 800, 400, func(in *render.Input, job *contract.Job) {
				in.FailWhile, job.Retry.MaxAttempts = downFile, 2
			}),
			play:    repairAndRetry,
			entries: []string{"charge", "refund", "reclaim"},
			state:   contract.StateSucceeded,
			notice:  "the money was back with the customer while the job waited, visibly, for a decision.",
		},
		{
			title:  "The account cannot pay for a poster of 64 megapixels",
			job:    picture("poster", 8000, 8000, nil),
			play:   beDeclined,
			state:  contract.StateDeclined,
			notice: "no entry, no work, no debt.",
		},
		{
			title: "Submitted again, and once more with another price",
			job: picture("twice", 600, 600, func(in *render.Input, _ *contract.Job) {
				in.SlowMs = 1500
			}),
			play:    submitTwice,
			entries: []string{"charge"},
			state:   contract.StateSucceeded,
			notice:  "one charge for three submissions: the job id is the key, and other terms under it are a conflict.",
		},
		{
			title: "Reclaim's worker is killed with SIGKILL while the work runs",
			job: picture("worker-killed", 640, 400, func(in *render.Input, _ *contract.Job) {
				in.SlowMs = 4000
			}),
			play:    killWorker,
			entries: []string{"charge"},
			state:   contract.StateSucceeded,
			notice:  "the new worker process went on where the dead one was: the work was done once and charged once.",
		},
		{
			title: "The studio's worker is killed with SIGKILL while it renders",
			job: picture("render-killed", 480, 480, func(in *render.Input, job *contract.Job) {
				in.SlowMs, job.Work.Heartbeat, job.Retry.Multiplier = 2000, seconds(3), 1
			}),
			play:    killRender,
			entries: []string{"charge"},
			state:   contract.StateSucceeded,
			notice:  "silence is not failure: nothing was refunded, and the probe was asked before anything was rendered again.",
		},
		{
			title: "The run is terminated from outside while the work runs",
			job: picture("terminated", 700, 400, func(in *render.Input, _ *contract.Job) {
				in.SlowMs = 3000
			}),
			play:    terminateAndResubmit,
			entries: []string{"charge"},
			state:   contract.StateSucceeded,
			notice:  "submitting the job again took it up from its row, without a second charge.",
		},
	}
}

// picture is a job that renders a part of the Mandelbrot set, priced by its size. change, which may be nil, makes it
// misbehave.
func picture(id string, width, height int, change func(*render.Input, *contract.Job)) contract.Job {
	in := render.Input{
		Width: width, Height: height, CenterX: -0.743, CenterY: 0.127, Scale: 0.02, MaxIterations: 400,
	}
	job := contract.Job{
		Tenant: tenant, JobID: id, Account: account, Actor: actor,
		Work: contract.Work{
			Activity: render.ActivityName, Probe: render.ProbeName, TaskQueue: devstack.WorkQueue,
			Timeout: seconds(60), Heartbeat: seconds(10),
		},
		Promise: seconds(60),
		Retry:   contract.Retrying{InitialBackoff: seconds(1)},
		Summary: fmt.Sprintf("fractal of %d × %d pixels", width, height),
	}
	if change != nil {
		change(&in, &job)
	}
	var err error
	if job.Cost, err = render.CostByMegapixel(width, height, creditsPerMegapixel); err != nil {
		panic(err) // the sizes are constants
	}
	if job.Work.Input, err = json.Marshal(in); err != nil {
		panic(err) // it is a struct of numbers and strings
	}
	return job
}

func seconds(n int) contract.Duration { return contract.Duration(time.Duration(n) * time.Second) }

func submitAndAwait(ctx context.Context, s *stage, job contract.Job) error {
	if err := s.submit(ctx, job, contract.VerdictCharged); err != nil {
		return err
	}
	return s.await(ctx, job)
}

func repairAndRetry(ctx context.Context, s *stage, job contract.Job) error {
	down := filepath.Join(s.stack.Results(), downFile)
	if err := os.WriteFile(down, nil, 0o644); err != nil {
		return fmt.Errorf("take the studio down: %w", err)
	}
	s.say("the studio is down")
	if err := s.submit(ctx, job, contract.VerdictCharged); err != nil {
		return err
	}
	err := s.waitFor(ctx, job, "the job to become a dead letter", func(ctx context.Context) (bool, error) {
		status, err := s.client.Status(ctx, tenant, job.JobID)
		return status.State == contract.StateDeadLetter, err
	})
	if err != nil {
		return err
	}
	if err := os.Remove(down); err != nil {
		return fmt.Errorf("repair the studio: %w", err)
	}
	s.say("the studio is repaired")
	_, err = s.client.Resolve(ctx, tenant, job.JobID, contract.Resolution{
		ID: "after-repair", Action: contract.ActionRetry, Operator: "dana", Reason: "the studio is repaired",
	})
	if err != nil {
		return err
	}
	return s.await(ctx, job)
}

func beDeclined(ctx context.Context, s *stage, job contract.Job) error {
	if err := s.submit(ctx, job, contract.VerdictDeclined); err != nil {
		return err
	}
	return s.await(ctx, job)
}

func submitTwice(ctx context.Context, s *stage, job contract.Job) error {
	if err := s.submit(ctx, job, contract.VerdictCharged); err != nil {
		return err
	}
	if err := s.submit(ctx, job, contract.VerdictAlready); err != nil {
		return err
	}
	dearer := job
	dearer.Cost++
	verdict, err := s.client.StartJob(ctx, dearer)
	if contract.CodeOf(err) != contract.CodeConflict {
		return fmt.Errorf("submitted with another price: expected %s, found verdict %q and error %w", contract.CodeConflict, verdict.Verdict, err)
	}
	s.say("submitted for %d credits: refused as a %s", dearer.Cost, contract.CodeConflict)
	return s.await(ctx, job)
}

func killWorker(ctx context.Context, s *stage, job contract.Job) error {
	if err := s.submitAndSeeItRun(ctx, job); err != nil {
		return err
	}
	s.stack.KillWorker()
	s.say("Reclaim's worker is dead")
	if err := s.stack.RestartWorker(ctx); err != nil {
		return err
	}
	s.say("a new one polls")
	if err := s.await(ctx, job); err != nil {
		return err
	}
	if s.result.Attempts != 1 {
		return fmt.Errorf("expected the work to be done once, found %d attempts", s.result.Attempts)
	}
	return nil
}

func killRender(ctx context.Context, s *stage, job contract.Job) error {
	if err := s.submitAndSeeItRun(ctx, job); err != nil {
		return err
	}
	s.stack.KillRender()
	s.say("the studio's worker is dead")
	if err := s.stack.RestartRender(ctx); err != nil {
		return err
	}
	s.say("a new one polls")
	return s.await(ctx, job)
}

func terminateAndResubmit(ctx context.Context, s *stage, job contract.Job) error {
	if err := s.submitAndSeeItRun(ctx, job); err != nil {
		return err
	}
	if err := s.stack.Temporal().TerminateWorkflow(ctx, job.WorkflowID(), "", "the demo ends it from outside"); err != nil {
		return fmt.Errorf("terminate the run: %w", err)
	}
	s.say("the run is terminated")
	if err := s.submit(ctx, job, contract.VerdictAlready); err != nil {
		return err
	}
	return s.await(ctx, job)
}
