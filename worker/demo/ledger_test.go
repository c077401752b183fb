package demo

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func TestEntriesAreCheckedByTypeAmountAndOrder(t *testing.T) {
	late := scene{job: contract.Job{Cost: 16}, entries: []string{"charge", "refund", "reclaim"}}
	charge, refund, reclaim := client.Entry{Type: "charge", Amount: -16}, client.Entry{Type: "refund", Amount: 16}, client.Entry{Type: "reclaim", Amount: -16}
	require.NoError(t, checkEntries(late, []client.Entry{charge, refund, reclaim}))
	require.NoError(t, checkEntries(scene{job: late.job}, nil))
	for name, found := range map[string][]client.Entry{
		"none": nil, "fewer": {charge, refund}, "order": {charge, reclaim, refund}, "more": {charge, refund, reclaim, reclaim},
		"amount": {charge, {Type: "refund", Amount: 15}, reclaim},
	} {
		err := checkEntries(late, found)
		require.ErrorContains(t, err, "expected the entries charge -16, refund +16, reclaim -16, found ", name)
	}
	require.ErrorContains(t, checkEntries(scene{job: late.job}, []client.Entry{charge}), "expected the entries none, found charge -16")
}

func TestScenesAreValidJobsOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, scene := range slices.Concat(scenes(), sourceScenes()) {
		_, _, err := scene.job.Encode()
		require.NoError(t, err, scene.title)
		assert.False(t, seen[scene.job.JobID], scene.job.JobID)
		seen[scene.job.JobID] = true
	}
	assert.Positive(t, expectedBalance(), "the account can pay for all but the poster")
}
