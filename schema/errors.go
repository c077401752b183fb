package schema

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrorType is the kind of a database failure, as callers and Temporal see it.
type ErrorType string

// The kinds of database failures.
const (
	// ErrorBusy: another transaction was in the way; nothing was written, and a repeat will do.
	ErrorBusy ErrorType = "DatabaseBusy"
	// ErrorUnavailable: no answer, so the statement may or may not have been committed. Its repeat tells.
	ErrorUnavailable ErrorType = "DatabaseUnavailable"
	// ErrorTooLate: the statement arrived after its not-after instant and did nothing.
	ErrorTooLate ErrorType = "StatementTooLate"
	// ErrorMisconfigured: rights, roles, tables or disk space are missing. It goes on being tried: an operator mends it.
	ErrorMisconfigured ErrorType = "DatabaseMisconfigured"
	// ErrorBroken: the statement itself is wrong or breaks a CHECK. Repeating cannot help; it is a fault of this program.
	ErrorBroken ErrorType = "StatementBroken"
)

// Failure is a database error with what its kind means for the caller.
type Failure struct {
	Type ErrorType
	// Retryable says whether the same statement may be sent again; Delay is how long to wait before it at least.
	Retryable bool
	Delay     time.Duration
	// Tried is what the statement was for.
	Tried string
	cause error
}

// Error names what was tried and Postgres' own message, never its detail line, which may quote values.
func (f *Failure) Error() string { return fmt.Sprintf("%s: %s: %v", f.Tried, f.Type, f.cause) }

// Unwrap returns the driver's error.
func (f *Failure) Unwrap() error { return f.cause }

// failures maps Postgres' error codes, or their two-letter classes, to what they mean. The longest entry that the code
// begins with counts. Source: PostgreSQL documentation, appendix A.
var failures = map[string]Failure{
	"0A000": {Type: ErrorBusy, Retryable: true}, // a prepared plan from before a migration; it is prepared anew
	"08":    {Type: ErrorUnavailable, Retryable: true},
	"23505": {Type: ErrorBusy, Retryable: true},                            // the other writer of the same key won; a repeat finds its row
	"25006": {Type: ErrorUnavailable, Retryable: true, Delay: time.Second}, // a standby: failover is under way
	"26000": {Type: ErrorBusy, Retryable: true},                            // a prepared statement that a pooler or a failover forgot
	"28":    {Type: ErrorMisconfigured, Retryable: true, Delay: 5 * time.Second},
	"3D":    {Type: ErrorMisconfigured, Retryable: true, Delay: 5 * time.Second},
	"3F":    {Type: ErrorMisconfigured, Retryable: true, Delay: 5 * time.Second},
	"40":    {Type: ErrorBusy, Retryable: true},
	"40003": {Type: ErrorUnavailable, Retryable: true},                           // statement completion unknown
	"42":    {Type: ErrorMisconfigured, Retryable: true, Delay: 5 * time.Second}, // a worker older or newer than the schema
	"53":    {Type: ErrorUnavailable, Retryable: true, Delay: time.Second},
	"55":    {Type: ErrorBusy, Retryable: true},
	"57":    {Type: ErrorUnavailable, Retryable: true, Delay: 500 * time.Millisecond},
	"57014": {Type: ErrorBusy, Retryable: true}, // statement_timeout: it was rolled back
	"58":    {Type: ErrorMisconfigured, Retryable: true, Delay: 5 * time.Second},
	"XX":    {Type: ErrorMisconfigured, Retryable: true, Delay: 5 * time.Second},
}

// Classify turns an error of the driver into a Failure, and returns nil for nil. Whatever has no answer from Postgres
// (connections lost or refused, timeouts) is ErrorUnavailable: unknown, not failed.
func Classify(tried string, err error) error {
	if err == nil {
		return nil
	}
	if failure, ok := errors.AsType[*Failure](err); ok {
		return failure
	}
	failure := Failure{Type: ErrorUnavailable, Retryable: true}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		failure = Failure{Type: ErrorBroken}
		for length := len(pg.Code); length >= 2; length-- {
			if known, ok := failures[pg.Code[:length]]; ok {
				failure = known
				break
			}
		}
	} else if _, ok := errors.AsType[pgx.ScanArgError](err); ok {
		failure = Failure{Type: ErrorBroken}
	} else if errors.Is(err, ErrNotMigrated) {
		failure = failures["42"]
	}
	failure.Tried, failure.cause = tried, err
	return &failure
}

// TooLate returns the Failure of a statement that its not-after instant kept from taking effect.
func TooLate(tried string) error {
	return &Failure{
		Type: ErrorTooLate, Retryable: true, Tried: tried,
		cause: errors.New("the statement reached Postgres after its not-after instant and did nothing"),
	}
}
