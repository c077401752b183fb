package contract

import (
	"errors"
	"fmt"
	"strings"
)

// Code is the type of an error, the same in Go, in Temporal (the application error's type), on the command line
// and over HTTP.
type Code string

// The error codes of the contract.
const (
	// CodeBadInput: the request breaks a rule; nothing was started or moved.
	CodeBadInput Code = "BadInput"
	// CodeConflict: the same job id or operation key stands for other parameters.
	CodeConflict Code = "Conflict"
	// CodeBadResolution: a person's decision is invalid or cannot be taken in the job's state.
	CodeBadResolution Code = "BadResolution"
	// CodeInsufficientCredits: the account is unknown, in debt, or has less than the cost.
	CodeInsufficientCredits Code = "InsufficientCredits"
	// CodeNotFound: there is no such job, account or record for this tenant.
	CodeNotFound Code = "NotFound"
	// CodeCapacityExceeded: more than is left of the order would go back.
	CodeCapacityExceeded Code = "CapacityExceeded"
	// CodeForbidden: the caller has no right to this; it is checked before anything is answered again.
	CodeForbidden Code = "Forbidden"
	// CodeUnauthorized: no valid API key came with the request.
	CodeUnauthorized Code = "Unauthorized"
	// CodeRateLimited: the API key has had its requests for the moment.
	CodeRateLimited Code = "RateLimited"
	// CodeExpired: the operation key was forgotten after its retention, and its refund is kept: ask for that one.
	CodeExpired Code = "Expired"
	// CodeUnavailable: Postgres or Temporal could not be reached; the outcome may be unknown.
	CodeUnavailable Code = "Unavailable"
)

// Retry is the advice that every error carries.
type Retry string

const (
	// RetrySameKey: the same request under the same key or id is safe, and right.
	RetrySameKey Retry = "same_key"
	// RetryNewKey: correct the request and send it under a new key or id.
	RetryNewKey Retry = "new_key"
	// RetryNever: repeating cannot help.
	RetryNever Retry = "never"
)

// Error is a refusal that names what was wrong and what to do about it.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Retry   Retry  `json:"retry"`
	// Fields names each field at fault, empty where the error is about the whole.
	Fields []FieldError `json:"fields,omitempty"`
	cause  error
}

// FieldError names a field and the rule that its value breaks.
type FieldError struct {
	Field string `json:"field"`
	Rule  string `json:"rule"`
}

// NewError returns an Error; cause may be nil and is kept for errors.Is and errors.As only.
func NewError(code Code, retry Retry, message string, cause error) *Error {
	return &Error{Code: code, Message: message, Retry: retry, cause: cause}
}

// AsError returns the Error inside err. What has none is trouble on this side, of which nothing is known: Unavailable.
func AsError(err error) *Error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	return NewError(CodeUnavailable, RetrySameKey, err.Error(), err)
}

// BadField returns the BadInput error of one field whose value breaks a rule.
func BadField(field, rule string) *Error {
	refusal := NewError(CodeBadInput, RetryNewKey, field+" "+rule, nil)
	refusal.Fields = []FieldError{{Field: field, Rule: rule}}
	return refusal
}

// ConflictOf returns the Conflict error of a submission whose job id stands for another job.
func ConflictOf(job Job) *Error {
	return NewError(CodeConflict, RetryNewKey, fmt.Sprintf(
		"job %s of tenant %s stands for other parameters (account, cost, activity, queue, input, refundTo or orderId "+
			"differ): submit the other job under an id of its own", job.JobID, job.Tenant), nil)
}

// Error gives the code's message.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Unwrap returns the error that caused this one, or nil.
func (e *Error) Unwrap() error { return e.cause }

// CodeOf returns the code of the Error inside err, or "" where there is none.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// problems collects every broken rule of one input, so that it is corrected in one go.
type problems []FieldError

func (p *problems) add(field, rule string) { *p = append(*p, FieldError{field, rule}) }

func (p problems) err(code Code) error {
	if len(p) == 0 {
		return nil
	}
	lines := make([]string, len(p))
	for i, f := range p {
		lines[i] = f.Field + " " + f.Rule
		if f.Field == "" {
			lines[i] = f.Rule
		}
	}
	return &Error{Code: code, Retry: RetryNewKey, Message: strings.Join(lines, "; "), Fields: p}
}

// clip shortens a value that is quoted in a message.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// Clip makes any text safe to keep beside money: valid UTF-8, without NUL, at most limit bytes (3 or more).
func Clip(s string, limit int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:max(limit-len("…"), 0)], "") + "…"
}
