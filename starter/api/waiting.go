package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// longestWait bounds what Prefer: wait asks for.
const longestWait = 60 * time.Second

// awaitAgain is the pause before a wait goes on that was cut short, as while Temporal is away.
const awaitAgain = time.Second

// preferredWait reads how long a caller is ready to wait, from a header as RFC 7240 has it; asked is false where it says
// nothing of that. Longer than longestWait is as long.
func preferredWait(header string) (wait time.Duration, asked bool, err error) {
	for preference := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(preference), "=")
		if !strings.EqualFold(strings.TrimSpace(name), "wait") {
			continue
		}
		value, _, _ = strings.Cut(value, ";")
		seconds, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 32)
		if err != nil {
			return 0, false, contract.BadField("Prefer", "must name the seconds to wait as a whole number: wait=30")
		}
		return min(time.Duration(seconds)*time.Second, longestWait), true, nil
	}
	return 0, false, nil
}

// wait carries out what the Prefer header asks for: it returns once what is awaited has ended, the time is over, or the door
// stops, and says then what was applied. A key that is revoked meanwhile gets no answer. What comes after the wait has ctx's
// usual time again, in the context that is returned.
func (d *Door) wait(ctx context.Context, prefer string, await func(context.Context) error) (_ context.Context, applied string, err error) {
	wait, asked, err := preferredWait(prefer)
	if err != nil || !asked {
		return ctx, "", err
	}
	ctx = withoutLimit(ctx)
	if control := controlOf(ctx); control != nil {
		if err := control.SetWriteDeadline(time.Now().Add(wait + writeWithin)); err != nil {
			return ctx, "", fmt.Errorf("give a waiting request its time: %w", err)
		}
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	go func() {
		select {
		case <-d.stopping:
			cancel()
		case <-waiting.Done():
		}
	}()
	d.waiting.Inc()
	defer d.waiting.Dec()
	for {
		err := await(waiting)
		if err == nil || waiting.Err() != nil {
			break
		}
		if contract.CodeOf(err) != contract.CodeUnavailable {
			return ctx, "", err
		}
		// Answered at once, a caller would ask again at once.
		select {
		case <-waiting.Done():
		case <-time.After(awaitAgain):
		}
	}
	if err := ctx.Err(); err != nil {
		return ctx, "", contract.NewError(contract.CodeUnavailable, contract.RetrySameKey, "the caller went away", err)
	}
	if err := d.stillValid(ctx); err != nil {
		return ctx, "", err
	}
	return ctx, fmt.Sprintf("wait=%d", int(wait.Seconds())), nil
}

// controlOf returns the control of the connection that a request came by, nil where it has none.
func controlOf(ctx context.Context) *http.ResponseController {
	about, ok := ctx.Value(recordInContext{}).(*record)
	if !ok {
		return nil
	}
	return about.control
}
