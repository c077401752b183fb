package demo

import (
	"context"
	"fmt"
	"io"
	"time"

	enumspb "go.temporal.io/api/enums/v1"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/worker/devstack"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// looksEvery is how often a wait looks at what it waits for.
const looksEvery = 100 * time.Millisecond

// stage is what a scene is played on.
type stage struct {
	stack  *devstack.Stack
	client *client.Client
	out    io.Writer

	// The scene that plays: when it began, what has been told of its job, and how that ended.
	began  time.Time
	told   map[client.Moment]bool
	result contract.JobResult
}

// say prints what happens, and when in the scene.
func (s *stage) say(format string, args ...any) { s.sayAt(time.Now(), format, args...) }

func (s *stage) sayAt(at time.Time, format string, args ...any) {
	fmt.Fprintf(s.out, "     %4.1f s  %s\n", max(at.Sub(s.began).Seconds(), 0), fmt.Sprintf(format, args...))
}

// submit starts the job and checks the verdict.
func (s *stage) submit(ctx context.Context, job contract.Job, want contract.Verdict) error {
	verdict, err := s.client.StartJob(ctx, job)
	if err != nil {
		return err
	}
	if verdict.Verdict != want {
		return fmt.Errorf("submitted: expected the verdict %s, found %s (%s)", want, verdict.Verdict, verdict.Reason)
	}
	s.say("submitted for %d credits: %s, balance %d", job.Cost, verdict.Verdict, verdict.Balance)
	return nil
}

// submitAndSeeItRun starts the job and waits until a worker has its work in hand.
func (s *stage) submitAndSeeItRun(ctx context.Context, job contract.Job) error {
	if err := s.submit(ctx, job, contract.VerdictCharged); err != nil {
		return err
	}
	err := s.waitFor(ctx, job, "the work to run", func(ctx context.Context) (bool, error) {
		run, err := s.stack.Temporal().DescribeWorkflow(ctx, job.WorkflowID(), "")
		if err != nil {
			return false, err
		}
		for _, work := range run.RawResponse.GetPendingActivities() {
			if work.GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED {
				return true, nil
			}
		}
		return false, nil
	})
	if err == nil {
		s.say("the work runs")
	}
	return err
}

// await waits until the job is closed, telling its story meanwhile.
func (s *stage) await(ctx context.Context, job contract.Job) error {
	type ending struct {
		result contract.JobResult
		err    error
	}
	ended := make(chan ending, 1)
	go func() {
		result, err := s.client.AwaitJob(ctx, tenant, job.JobID)
		ended <- ending{result, err}
	}()
	var end ending
	err := s.waitFor(ctx, job, "the job to end", func(context.Context) (bool, error) {
		select {
		case end = <-ended:
			return true, end.err
		default:
			return false, nil
		}
	})
	s.result = end.result
	return err
}

// waitFor looks until the condition holds, the look fails, or ctx ends, telling the job's story meanwhile.
func (s *stage) waitFor(ctx context.Context, job contract.Job, what string, look func(context.Context) (bool, error)) error {
	for {
		holds, err := look(ctx)
		s.tell(ctx, job)
		if ctx.Err() != nil {
			return fmt.Errorf("gave up waiting for %s: %w", what, ctx.Err())
		}
		if err != nil || holds {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(looksEvery):
		}
	}
}

// tell prints what has happened to the job since the last time, apart from its money, which the ledger shows.
func (s *stage) tell(ctx context.Context, job contract.Job) {
	// What cannot be read now, or not yet, is told the next time.
	story, _ := s.client.Timeline(ctx, tenant, job.JobID)
	for _, moment := range story {
		switch moment.Kind {
		case "charge", "refund", "reclaim", "closed":
			continue
		}
		if moment.BalanceAfter = nil; s.told[moment] {
			continue
		}
		s.told[moment] = true
		s.sayAt(moment.At, "%s", moment.Text)
	}
}
