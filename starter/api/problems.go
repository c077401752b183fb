package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Problem is what every answer is that is not a success: RFC 9457's members, with the contract's beside them.
type Problem struct {
	Title  string `json:"title" doc:"The status in words"`
	Status int    `json:"status" doc:"The HTTP status"`
	Detail string `json:"detail" doc:"What was wrong, and what to do about it"`
	// Code and Retry are what programs decide by.
	Code   contract.Code         `json:"code" doc:"What kind of error it is, the same as in Go, in Temporal and on the command line"`
	Retry  contract.Retry        `json:"retry" enum:"same_key,new_key,never" doc:"Whether repeating helps: the same request is safe and right, a corrected one under a new key or id is needed, or nothing helps"`
	Fields []contract.FieldError `json:"fields,omitempty" doc:"Each field at fault, with the rule that it breaks"`
	// Verdict is set where a charge was declined.
	Verdict *contract.ChargeVerdict `json:"verdict,omitempty" doc:"The verdict, where a charge was declined"`
	headers http.Header
	// cause is for the log: it may hold what is not the caller's to know.
	cause error
}

// Error gives the detail.
func (p *Problem) Error() string { return string(p.Code) + ": " + p.Detail }

// GetStatus gives the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders gives what the answer's head says beside the body.
func (p *Problem) GetHeaders() http.Header { return p.headers }

// ContentType gives the media type of problems.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// statuses is the one table from the contract's codes to HTTP's.
var statuses = map[contract.Code]int{
	contract.CodeBadInput:            http.StatusBadRequest,
	contract.CodeUnauthorized:        http.StatusUnauthorized,
	contract.CodeInsufficientCredits: http.StatusPaymentRequired,
	contract.CodeForbidden:           http.StatusForbidden,
	contract.CodeNotFound:            http.StatusNotFound,
	contract.CodeConflict:            http.StatusConflict,
	contract.CodeBadResolution:       http.StatusConflict,
	contract.CodeCapacityExceeded:    http.StatusConflict,
	contract.CodeExpired:             http.StatusGone,
	contract.CodeRateLimited:         http.StatusTooManyRequests,
	contract.CodeUnavailable:         http.StatusServiceUnavailable,
}

// StatusOf gives the HTTP status of a code; of one that the contract does not have, 500.
func StatusOf(code contract.Code) int {
	if status, ok := statuses[code]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// retryAfter is how many seconds a caller is asked to wait before it repeats what could not be answered.
const retryAfter = "1"

// problemOf turns any error into a problem. What is not a contract error is a fault of ours: its words may hold what is
// not the caller's to know, so they are logged and not told.
func problemOf(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	known, ok := errors.AsType[*contract.Error](err)
	if ok && known.Code == contract.CodeForbidden && known.Unwrap() != nil {
		// The server's own login lacks a right: that is not the caller's.
		known = contract.NewError(contract.CodeUnavailable, contract.RetryNever, known.Message, known)
	}
	if !ok {
		return &Problem{
			Title: http.StatusText(http.StatusInternalServerError), Status: http.StatusInternalServerError,
			Detail: "this request met a fault of the server, whose log says more under the request's id",
			Code:   contract.CodeUnavailable, Retry: contract.RetrySameKey, cause: err,
		}
	}
	status := StatusOf(known.Code)
	p := &Problem{
		Title: http.StatusText(status), Status: status, Detail: known.Message, Code: known.Code, Retry: known.Retry,
		Fields: known.Fields, headers: http.Header{},
	}
	switch known.Code {
	case contract.CodeUnauthorized:
		p.headers.Set("WWW-Authenticate", `Bearer realm="reclaim"`)
	case contract.CodeUnavailable:
		// The causes name hosts, roles and statements: they are for the log.
		p.cause = known
		p.Detail, _, _ = strings.Cut(known.Message, ": ")
		p.Detail += ": no answer could be had; what was asked for may or may not have happened, and repeating the same request is safe"
		if known.Retry == contract.RetryNever {
			p.Detail = "this cannot be done by this server as it is; its log says why"
		} else {
			p.headers.Set("Retry-After", retryAfter)
		}
	case contract.CodeRateLimited:
		p.headers.Set("Retry-After", retryAfter)
	}
	return p
}

// plainProblem is a problem of HTTP's own, before any of the contract's.
func plainProblem(status int, detail string) *Problem {
	code, retry := contract.CodeBadInput, contract.RetryNewKey
	switch {
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed:
		code, retry = contract.CodeNotFound, contract.RetryNever
	case status >= http.StatusInternalServerError:
		code, retry = contract.CodeUnavailable, contract.RetrySameKey
	}
	return &Problem{Title: http.StatusText(status), Status: status, Detail: detail, Code: code, Retry: retry, headers: http.Header{}}
}

// refuse answers a request with the problem that the error is.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	noteCause(r.Context(), p.cause)
	for name, values := range p.headers {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	// The sender has its status already; one that went away needs no body.
	_ = json.NewEncoder(w).Encode(p)
}

// The router says what it refuses by itself in problems too.
func init() {
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		var fields []contract.FieldError
		var words []string
		for _, err := range errs {
			if detail, ok := errors.AsType[*huma.ErrorDetail](err); ok {
				field := detail.Location[strings.Index(detail.Location, ".")+1:]
				fields = append(fields, contract.FieldError{Field: field, Rule: detail.Message})
				words = append(words, field+" "+detail.Message)
			}
		}
		if status == http.StatusUnprocessableEntity {
			status = http.StatusBadRequest
		}
		if len(words) > 0 {
			message = strings.Join(words, "; ")
		}
		p := plainProblem(status, message)
		p.Fields = fields
		return p
	}
}
