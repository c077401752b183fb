package workflows

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"google.golang.org/protobuf/proto"
)

// cloudActions counts what Temporal Cloud bills of a history, by the rules of its documentation: starts, updates, signals,
// timers, activities and their retries, upserts, and the markers of one workflow task together. Heartbeats leave no event.
func cloudActions(events []*historypb.HistoryEvent) (actions int) {
	marked := map[int64]bool{}
	for _, event := range events {
		switch event.GetEventType() {
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
			enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED, enumspb.EVENT_TYPE_TIMER_STARTED,
			enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED, enumspb.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES:
			actions++
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_STARTED:
			actions += int(event.GetActivityTaskStartedEventAttributes().GetAttempt()) - 1
		case enumspb.EVENT_TYPE_MARKER_RECORDED:
			if task := event.GetMarkerRecordedEventAttributes().GetWorkflowTaskCompletedEventId(); !marked[task] {
				marked[task] = true
				actions++
			}
		}
	}
	return actions
}

// The guide's table of what a run costs is counted from the recorded histories.
func TestTheDeploymentGuideSaysWhatARunCosts(t *testing.T) {
	guide, err := os.ReadFile("../docs/deployment.md")
	require.NoError(t, err)
	for _, name := range []string{
		"on_time", "late_success", "failed_then_succeeded", "dead_letter_then_retry", "declined", "canceled", "refund_confirmed_by_looking",
		"refund_told_by_notice",
	} {
		raw, err := os.ReadFile(filepath.Join("testdata/histories/1", name+".json"))
		require.NoError(t, err)
		var history historypb.History
		require.NoError(t, temporalproto.CustomJSONUnmarshalOptions{DiscardUnknown: true}.Unmarshal(raw, &history))
		size := proto.Size(&history)
		row := fmt.Sprintf("| `%s` | %d | %.1f | %d |", name, len(history.GetEvents()), float64(size)/1000, cloudActions(history.GetEvents()))
		assert.True(t, strings.Contains(string(guide), row), "docs/deployment.md lacks the row %s", row)
		t.Log(row)
	}
}
