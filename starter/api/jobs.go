package api

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// chargeWithin is how long a submission waits for the verdict of its charge.
const chargeWithin = 5 * time.Second

// Submitted is the answer to a submission. Without a verdict, the job was started and its charge is not known yet.
type Submitted struct {
	JobID  string           `json:"jobId"`
	Status string           `json:"status" doc:"Where the job is followed"`
	Charge contract.Verdict `json:"verdict,omitempty" enum:"charged,already" doc:"Left out while the charge is not known yet"`
	// Balance is the account's after the verdict.
	Balance *int64 `json:"balance,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// Timeline is a job's whole story.
type Timeline struct {
	JobID   string          `json:"jobId"`
	Moments []client.Moment `json:"moments"`
}

// Accepted says that a message to a job's run is kept.
type Accepted struct {
	JobID    string `json:"jobId"`
	Accepted bool   `json:"accepted"`
}

// NoBody is the body of what says everything by its address.
type NoBody struct{}

func (d *Door) jobRoutes(routes huma.API) {
	type submitInput struct{}
	type submitOutput struct {
		Status   int
		Location string `header:"Location"`
		Body     Submitted
	}
	handle(routes, route{
		id: "submit-job", method: http.MethodPost, path: "/v1/jobs", tag: "jobs", summary: "Charge for a job and start it",
		scope: "jobs:write", body: JobBody{}, status: http.StatusCreated,
		again: "The same job was charged before: nothing moved now", pending: "Started; whether it was charged is not known yet",
		errors: []int{402, 409},
	}, func(ctx context.Context, key client.Key, _ *submitInput) (*submitOutput, error) {
		job, err := contract.ParseSubmission(bodyOf(ctx), key.Tenant, key.Actor)
		if err != nil {
			return nil, err
		}
		verdict, pending, err := d.client.SubmitJob(ctx, job, chargeWithin)
		if err != nil {
			return nil, err
		}
		answer := &submitOutput{Location: "/v1/jobs/" + job.JobID}
		answer.Body = Submitted{JobID: job.JobID, Status: answer.Location}
		if pending {
			answer.Status = http.StatusAccepted
			answer.Body.Reason = "started; whether it was charged is not known yet"
			return answer, nil
		}
		if verdict.Verdict == contract.VerdictDeclined {
			return nil, declined(job, verdict)
		}
		answer.Status = created(verdict.Verdict == contract.VerdictCharged)
		answer.Body.Charge, answer.Body.Balance, answer.Body.Reason = verdict.Verdict, &verdict.Balance, verdict.Reason
		return answer, nil
	})

	type jobInput struct {
		Job string `path:"job"`
	}
	type getInput struct {
		Job    string `path:"job"`
		Prefer string `header:"Prefer" doc:"wait=N: answer once the job is closed, after N seconds at the latest"`
	}
	type getOutput struct {
		Applied string `header:"Preference-Applied"`
		Body    client.Job
	}
	handle(routes, route{
		id: "get-job", method: http.MethodGet, path: "/v1/jobs/{job}", tag: "jobs", summary: "Read where a job stands",
		scope: "jobs:read", readsJob: true, status: http.StatusOK, errors: []int{404},
	}, func(ctx context.Context, key client.Key, input *getInput) (*getOutput, error) {
		job, err := jobAsked(ctx)
		if err != nil {
			return nil, err
		}
		ctx, applied, err := d.wait(ctx, input.Prefer, func(ctx context.Context) error {
			if !job.State.Open() {
				return nil
			}
			_, err := d.client.AwaitJob(ctx, key.Tenant, input.Job)
			return err
		})
		if err != nil {
			return nil, err
		}
		if applied != "" && job.State.Open() {
			job, err = d.client.Job(ctx, key.Tenant, input.Job)
		}
		return &getOutput{applied, job}, err
	})

	type timelineOutput struct{ Body Timeline }
	handle(routes, route{
		id: "get-job-timeline", method: http.MethodGet, path: "/v1/jobs/{job}/timeline", tag: "jobs",
		summary: "Tell a job's whole story", scope: "jobs:read", status: http.StatusOK, errors: []int{404},
	}, func(ctx context.Context, key client.Key, input *jobInput) (*timelineOutput, error) {
		moments, err := d.client.Timeline(ctx, key.Tenant, input.Job)
		return &timelineOutput{Timeline{input.Job, moments}}, err
	})

	type acceptedOutput struct{ Body Accepted }
	handle(routes, route{
		id: "report-outcome", method: http.MethodPost, path: "/v1/jobs/{job}/outcome", tag: "jobs",
		summary: "Report from outside how an attempt of the work ended", scope: "jobs:write", body: OutcomeBody{},
		maxBody: maxReport, status: http.StatusAccepted, errors: []int{404},
	}, func(ctx context.Context, key client.Key, input *jobInput) (*acceptedOutput, error) {
		outcome, err := contract.ParseOutcome(bodyOf(ctx))
		if err != nil {
			return nil, err
		}
		outcome.Source = cmp.Or(outcome.Source, key.Actor)
		err = d.client.ReportOutcome(ctx, key.Tenant, input.Job, outcome)
		return &acceptedOutput{Accepted{input.Job, true}}, err
	})

	type resolveOutput struct{ Body contract.ResolutionAnswer }
	handle(routes, route{
		id: "resolve-job", method: http.MethodPost, path: "/v1/jobs/{job}/resolution", tag: "jobs",
		summary: "Take a person's decision about a job", scope: "resolve", body: ResolutionBody{}, status: http.StatusOK,
		errors: []int{404, 409},
	}, func(ctx context.Context, key client.Key, input *jobInput) (*resolveOutput, error) {
		decision, err := decoded[contract.Resolution](ctx)
		if err != nil {
			return nil, err
		}
		decision.Operator = operatorBy(key, decision.Operator)
		answer, err := d.client.Resolve(ctx, key.Tenant, input.Job, decision)
		return &resolveOutput{answer}, err
	})

	handle(routes, route{
		id: "cancel-job", method: http.MethodPost, path: "/v1/jobs/{job}/cancellation", tag: "jobs",
		summary: "Refund a job and ask its work to stop", scope: "jobs:write", body: NoBody{}, bodyOptional: true,
		status: http.StatusAccepted, errors: []int{404},
	}, func(ctx context.Context, key client.Key, input *jobInput) (*acceptedOutput, error) {
		if len(bodyOf(ctx)) > 0 {
			if _, err := decoded[NoBody](ctx); err != nil {
				return nil, err
			}
		}
		return &acceptedOutput{Accepted{input.Job, true}}, d.client.Cancel(ctx, key.Tenant, input.Job)
	})
}

// declined is the problem of a job that its account cannot pay.
func declined(job contract.Job, verdict contract.ChargeVerdict) error {
	// The same submission is right again once the account can pay.
	p := problemOf(contract.NewError(contract.CodeInsufficientCredits, contract.RetrySameKey,
		"job "+job.JobID+" was not charged and not started: "+verdict.Reason, nil))
	p.Verdict = &verdict
	return p
}
