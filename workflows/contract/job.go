package contract

import (
	"encoding/json"
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
)

// RefundTarget says where a job's refund goes.
type RefundTarget string

const (
	// RefundToBalance: the credits come back to the account.
	RefundToBalance RefundTarget = "balance"
	// RefundToSource: the credits come back and then leave as a channel refund of the job's order.
	RefundToSource RefundTarget = "source"
)

// Job is the input of a MeteredJob run. In Go, a zero value of an optional field means its default; in JSON, leave
// the field out. ParseJob returns a Job with every default filled in.
type Job struct {
	// Tenant is the isolation boundary; JobID is unique within it and is the submission's idempotency key.
	Tenant string `json:"tenant"`
	JobID  string `json:"jobId"`
	// Account pays Cost, a whole number of the account's smallest unit, 0 to MaxCost.
	Account string `json:"account"`
	Cost    int64  `json:"cost"`
	// Actor says who submitted the job, for the reader of a timeline.
	Actor string `json:"actor,omitempty"`
	Work  Work   `json:"work"`
	// Promise is the time from the charge after which an undelivered job is refunded.
	Promise Duration `json:"promise"`
	Retry   Retrying `json:"retry,omitzero"`
	// RefundOnFailure, true unless set, refunds at the first failed attempt; false waits for the promise to pass
	// or the attempts to run out.
	RefundOnFailure *bool        `json:"refundOnFailure,omitempty"`
	RefundTo        RefundTarget `json:"refundTo,omitempty"`
	OrderID         string       `json:"orderId,omitempty"`
	// Summary is one line for people.
	Summary string `json:"summary,omitempty"`
}

// Work names the Temporal activity that does the job.
type Work struct {
	// Activity and TaskQueue name the work activity and the queue that its workers poll.
	Activity  string `json:"activity"`
	TaskQueue string `json:"taskQueue"`
	// Input is handed to the activity as its first argument; absent means null. An empty object is not absent.
	Input json.RawMessage `json:"input,omitzero"`
	// Timeout is how long one attempt may really run, lateness included; Heartbeat, 0 for none, is how long it may
	// stay silent.
	Timeout   Duration `json:"timeout"`
	Heartbeat Duration `json:"heartbeat,omitzero"`
	// Probe names an optional activity on the same queue that looks where results are kept.
	Probe string `json:"probe,omitempty"`
}

// Retrying says how often and how fast a failed attempt is repeated.
type Retrying struct {
	// MaxAttempts, 1 to 100, counts the first attempt too. Default 3.
	MaxAttempts int `json:"maxAttempts,omitzero"`
	// InitialBackoff (default 1s) grows by Multiplier (default 2, at least 1) after each attempt up to MaxBackoff
	// (default 1m). Pauses under one second take one second.
	InitialBackoff Duration `json:"initialBackoff,omitzero"`
	Multiplier     float64  `json:"multiplier,omitzero"`
	MaxBackoff     Duration `json:"maxBackoff,omitzero"`
}

// Backoff returns the pause after the given number of finished attempts (1 for the first).
func (r Retrying) Backoff(finished int) time.Duration {
	pause, limit := float64(r.InitialBackoff), float64(r.MaxBackoff)
	for i := 1; i < finished && pause < limit; i++ {
		pause *= r.Multiplier
	}
	return max(time.Duration(min(pause, limit)), time.Second)
}

// RefundsOnFailure returns RefundOnFailure with its default.
func (j Job) RefundsOnFailure() bool { return j.RefundOnFailure == nil || *j.RefundOnFailure }

// WorkflowID returns the workflow id under which the job runs.
func (j Job) WorkflowID() string { return JobWorkflowID(j.Tenant, j.JobID) }

// Encode returns the job as the JSON input of a run and, parsed back from it, the job with its defaults. It fails
// with BadInput where ParseJob would.
func (j Job) Encode() ([]byte, Job, error) {
	if len(j.Work.Input) == 0 {
		j.Work.Input = nil
	}
	raw, err := jsonv2.Marshal(j)
	if err != nil {
		return nil, Job{}, NewError(CodeBadInput, RetryNewKey, "the job cannot be written as JSON: "+err.Error(), err)
	}
	parsed, err := ParseJob(raw)
	return raw, parsed, err
}

// jobWire is Job as it is received: pointers tell an absent member from a zero one.
type jobWire struct {
	Tenant  *string   `json:"tenant"`
	JobID   *string   `json:"jobId"`
	Account *string   `json:"account"`
	Cost    *int64    `json:"cost"`
	Actor   string    `json:"actor"`
	Work    *workWire `json:"work"`
	Promise *Duration `json:"promise"`
	Retry   struct {
		MaxAttempts    *int      `json:"maxAttempts"`
		InitialBackoff *Duration `json:"initialBackoff"`
		Multiplier     *float64  `json:"multiplier"`
		MaxBackoff     *Duration `json:"maxBackoff"`
	} `json:"retry"`
	RefundOnFailure *bool  `json:"refundOnFailure"`
	RefundTo        string `json:"refundTo"`
	OrderID         string `json:"orderId"`
	Summary         string `json:"summary"`
}

type workWire struct {
	Activity  *string         `json:"activity"`
	TaskQueue *string         `json:"taskQueue"`
	Input     json.RawMessage `json:"input"`
	Timeout   *Duration       `json:"timeout"`
	Heartbeat Duration        `json:"heartbeat"`
	Probe     string          `json:"probe"`
}

// ParseJob reads a job's JSON input, fills in its defaults and checks every rule. The error is an *Error with code
// BadInput that names each field at fault.
func ParseJob(raw []byte) (Job, error) {
	var wire jobWire
	if err := Decode(raw, MaxInputBytes, &wire); err != nil {
		return Job{}, err
	}
	return wire.job(nil)
}

// ParseSubmission is ParseJob for a job whose tenant and actor follow from the credential that came with it. They may be
// left out of the JSON; others than the credential's are refused.
func ParseSubmission(raw []byte, tenant, actor string) (Job, error) {
	var wire jobWire
	if err := Decode(raw, MaxInputBytes, &wire); err != nil {
		return Job{}, err
	}
	var p problems
	const rule = "is decided by the API key: leave it out"
	if wire.Tenant != nil && *wire.Tenant != tenant {
		p.add("tenant", rule)
	}
	if wire.Actor != "" && wire.Actor != actor {
		p.add("actor", rule)
	}
	wire.Tenant, wire.Actor = &tenant, actor
	return wire.job(p)
}

// job checks every rule of what was received, beside what was found already, and fills in the defaults.
func (wire jobWire) job(p problems) (Job, error) {
	job := Job{
		Tenant:  required(&p, "tenant", wire.Tenant),
		JobID:   required(&p, "jobId", wire.JobID),
		Account: required(&p, "account", wire.Account),
		Actor:   wire.Actor,
		Promise: required(&p, "promise", wire.Promise),
		Retry: Retrying{
			MaxAttempts:    optional(wire.Retry.MaxAttempts, 3),
			InitialBackoff: optional(wire.Retry.InitialBackoff, Duration(time.Second)),
			Multiplier:     optional(wire.Retry.Multiplier, 2),
			MaxBackoff:     optional(wire.Retry.MaxBackoff, Duration(time.Minute)),
		},
		RefundOnFailure: new(optional(wire.RefundOnFailure, true)),
		RefundTo:        RefundTarget(wire.RefundTo),
		OrderID:         wire.OrderID,
		Summary:         wire.Summary,
	}
	if wire.Cost == nil {
		p.add("cost", "is missing: a whole number of the account's smallest unit is needed")
	} else if job.Cost = *wire.Cost; job.Cost < 0 || job.Cost > MaxCost {
		p.add("cost", fmt.Sprintf("must be between 0 and %d, not %d", MaxCost, job.Cost))
	}
	if job.RefundTo == "" {
		job.RefundTo = RefundToBalance
	}
	if wire.Work == nil {
		p.add("work", "is missing: it names the activity that does the job")
	} else {
		job.Work = Work{
			Activity:  required(&p, "work.activity", wire.Work.Activity),
			TaskQueue: required(&p, "work.taskQueue", wire.Work.TaskQueue),
			Input:     wire.Work.Input,
			Timeout:   required(&p, "work.timeout", wire.Work.Timeout),
			Heartbeat: wire.Work.Heartbeat,
			Probe:     wire.Work.Probe,
		}
		if len(job.Work.Input) == 0 {
			job.Work.Input = json.RawMessage("null")
		}
		checkName(&p, "work.activity", wire.Work.Activity)
		checkQueue(&p, "work.taskQueue", wire.Work.TaskQueue)
		if wire.Work.Probe != "" {
			checkName(&p, "work.probe", &wire.Work.Probe)
		}
		checkSpan(&p, "work.timeout", wire.Work.Timeout)
		if h := job.Work.Heartbeat; h < 0 || h.Std() > MaxDuration {
			p.add("work.heartbeat", "must be between 0s and ten years")
		}
	}
	checkID(&p, "tenant", wire.Tenant)
	checkID(&p, "jobId", wire.JobID)
	checkID(&p, "account", wire.Account)
	if job.OrderID != "" {
		checkID(&p, "orderId", &job.OrderID)
	}
	checkText(&p, "actor", job.Actor, 200)
	checkText(&p, "summary", job.Summary, MaxReasonBytes)
	checkSpan(&p, "promise", wire.Promise)
	if n := job.Retry.MaxAttempts; n < 1 || n > 100 {
		p.add("retry.maxAttempts", fmt.Sprintf("must be between 1 and 100, not %d", n))
	}
	if job.Retry.Multiplier < 1 {
		p.add("retry.multiplier", "must be at least 1")
	}
	checkSpan(&p, "retry.initialBackoff", &job.Retry.InitialBackoff)
	checkSpan(&p, "retry.maxBackoff", &job.Retry.MaxBackoff)
	switch job.RefundTo {
	case RefundToBalance:
	case RefundToSource:
		if job.OrderID == "" {
			p.add("orderId", "is missing: refundTo \"source\" sends the refund through this order")
		}
	default:
		p.add("refundTo", "must be \"balance\" or \"source\"")
	}
	if err := p.err(CodeBadInput); err != nil {
		return Job{}, err
	}
	return job, nil
}

func required[T any](p *problems, field string, value *T) T {
	if value == nil {
		p.add(field, "is missing")
		var zero T
		return zero
	}
	return *value
}

func optional[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}
