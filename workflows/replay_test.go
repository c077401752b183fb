package workflows_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/reclaimhq/reclaim/workflows"
)

// recorded is how many histories each number of the ladder has: a file that is lost would otherwise pass unseen.
var recorded = map[string]int{"1": 21}

// TestRecordedHistoriesReplay fails where today's code would decide otherwise than a worker did whose runs may still be
// open. `make histories` records them; see ladder.go for when.
func TestRecordedHistoriesReplay(t *testing.T) {
	counts := map[string]int{}
	files, err := filepath.Glob("testdata/histories/*/*.json")
	require.NoError(t, err)
	for _, file := range files {
		number := filepath.Base(filepath.Dir(file))
		counts[number]++
		t.Run(number+"/"+strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			// What a second without the processor looks like to the detector is no deadlock.
			replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DisableDeadlockDetection: true})
			require.NoError(t, err)
			workflows.Register(replayer)
			text, err := os.Open(file)
			require.NoError(t, err)
			defer func() { _ = text.Close() }()
			history, err := client.HistoryFromJSON(text, client.HistoryJSONOptions{})
			require.NoError(t, err)
			// A job checks the id that it runs under.
			id := history.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes().GetWorkflowId()
			require.NoError(t, replayer.ReplayWorkflowHistoryWithOptions(nil, history,
				worker.ReplayWorkflowHistoryOptions{OriginalExecution: workflow.Execution{ID: id}}))
		})
	}
	require.Equal(t, recorded, counts)
}
