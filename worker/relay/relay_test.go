package relay

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.temporal.io/api/serviceerror"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

func TestPausesDoubleUpToALimitThatIsShortWhileTemporalIsAway(t *testing.T) {
	t.Parallel()
	away := func(cause error) error {
		return fmt.Errorf("start: %w", contract.NewError(contract.CodeUnavailable, contract.RetrySameKey, "no answer", cause))
	}
	poisoned := contract.NewError(contract.CodeUnavailable, contract.RetrySameKey, "a run of this id is open", nil)
	for _, test := range []struct {
		err      error
		attempts int32
		want     time.Duration
	}{
		{poisoned, 0, time.Second}, // an attempt that was not counted
		{poisoned, 1, time.Second},
		{poisoned, 2, 2 * time.Second},
		{poisoned, 5, 16 * time.Second},
		{poisoned, 9, 256 * time.Second},
		{poisoned, 10, 5 * time.Minute},
		{poisoned, 1 << 30, 5 * time.Minute},
		{away(serviceerror.NewUnavailable("away")), 1, time.Second},
		{away(serviceerror.NewUnavailable("away")), 5, 8 * time.Second},
		{away(serviceerror.NewDeadlineExceeded("late")), 1 << 30, 8 * time.Second},
		{away(&serviceerror.ResourceExhausted{Message: "busy"}), 9, 8 * time.Second},
		{away(context.DeadlineExceeded), 9, 8 * time.Second},
		{away(serviceerror.NewPermissionDenied("no", "")), 9, 256 * time.Second},
	} {
		assert.Equal(t, test.want, pauseAfter(test.attempts, test.err), "attempt %d: %v", test.attempts, test.err)
	}
}

// A row that is being delivered must not be taken by another relay, whatever has to be waited for.
func TestALeaseOutlastsADelivery(t *testing.T) {
	t.Parallel()
	assert.Greater(t, lease, call+3*mark, "a start, an issue in its place, the mark and the deferral")
}
