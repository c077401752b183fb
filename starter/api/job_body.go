package api

import (
	"encoding/json"

	"github.com/danielgtaylor/huma/v2"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// JobBody describes the body of a submission. The contract's own decoder reads it; tenant and actor follow from the key.
type JobBody struct {
	Tenant  string   `json:"tenant,omitempty" doc:"The key's, which need not be named"`
	JobID   string   `json:"jobId" pattern:"^[A-Za-z0-9._:-]+$" minLength:"1" maxLength:"100" doc:"Unique in the tenant, and the submission's idempotency key"`
	Account string   `json:"account" pattern:"^[A-Za-z0-9._:-]+$" minLength:"1" maxLength:"100" doc:"Who pays"`
	Cost    int64    `json:"cost" minimum:"0" maximum:"9007199254740991" doc:"In the account's smallest unit"`
	Actor   string   `json:"actor,omitempty" doc:"The key's, which need not be named"`
	Work    WorkBody `json:"work"`
	Promise Span     `json:"promise" example:"30s" doc:"The time from the charge after which an undelivered job is refunded: a Go duration, up to ten years"`

	Retry           *RetryBody `json:"retry,omitempty"`
	RefundOnFailure *bool      `json:"refundOnFailure,omitempty" doc:"true unless given: refund at the first failed attempt; false: when the promise passes or the attempts are used up"`
	RefundTo        string     `json:"refundTo,omitempty" enum:"balance,source" doc:"Where a refund goes; source: through the channel of the order orderId"`
	OrderID         string     `json:"orderId,omitempty" pattern:"^[A-Za-z0-9._:-]+$" maxLength:"100"`
	Summary         string     `json:"summary,omitempty" maxLength:"2000" doc:"One line for people"`
}

// Span describes a span of time.
type Span string

// Schema tells how a span is written.
func (Span) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Pattern: `^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`}
}

// WorkBody names the Temporal activity that does the job.
type WorkBody struct {
	Activity  string          `json:"activity" pattern:"^[ -~]+$" minLength:"1" maxLength:"200"`
	TaskQueue string          `json:"taskQueue" pattern:"^[ -~]+$" minLength:"1" maxLength:"200" doc:"The queue that your workers poll"`
	Input     json.RawMessage `json:"input,omitempty" doc:"Any JSON: the activity's first argument"`
	Timeout   Span            `json:"timeout" example:"10m" doc:"How long one attempt may really run, lateness included"`
	Heartbeat Span            `json:"heartbeat,omitempty" example:"10s" doc:"How long an attempt may stay silent; 0s: no limit"`
	Probe     string          `json:"probe,omitempty" pattern:"^[ -~]*$" maxLength:"200" doc:"An activity on the same queue that looks where results are kept"`
}

// RetryBody says how often and how fast a failed attempt is repeated.
type RetryBody struct {
	MaxAttempts    int     `json:"maxAttempts,omitempty" minimum:"1" maximum:"100" doc:"The first one included; 3 if left out"`
	InitialBackoff Span    `json:"initialBackoff,omitempty" example:"1s" doc:"The first pause, 1s if left out"`
	Multiplier     float64 `json:"multiplier,omitempty" minimum:"1" doc:"How the pause grows, 2 if left out"`
	MaxBackoff     Span    `json:"maxBackoff,omitempty" example:"1m" doc:"The longest pause, 1m if left out"`
}

// OutcomeBody describes the body of a report from outside, which the contract's own decoder reads.
type OutcomeBody struct {
	Attempt int                   `json:"attempt,omitempty" minimum:"0" maximum:"2147483647" doc:"The attempt that ended; left out, the one in flight"`
	State   contract.OutcomeState `json:"state" enum:"succeeded,failed"`
	Output  json.RawMessage       `json:"output,omitempty" doc:"Any JSON: the work's result"`
	Error   string                `json:"error,omitempty" doc:"Why it failed"`
	Source  string                `json:"source,omitempty" doc:"Who reports, the key's actor if left out"`
}

// ResolutionBody describes the body of a decision about a job, which the contract's own decoder reads.
type ResolutionBody struct {
	ID       string          `json:"id" pattern:"^[A-Za-z0-9._:-]+$" minLength:"1" maxLength:"100" doc:"Makes the decision repeatable: the same id and content is answered as the first time"`
	Action   contract.Action `json:"action" enum:"retry,deliver,write_off"`
	Operator string          `json:"operator,omitempty" maxLength:"2000" doc:"Who decided, the key's actor if left out"`
	Reason   string          `json:"reason" pattern:"\\S" maxLength:"2000"`
	Evidence string          `json:"evidence,omitempty" maxLength:"2000" doc:"How it is known that the customer has the result; deliver needs it"`
	Attempts int             `json:"attempts,omitempty" minimum:"1" maximum:"100" doc:"How many more attempts a retry grants, 1 if left out"`
}
