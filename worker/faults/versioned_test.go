package faults_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

func TestAVersionedDeployTakesOpenJobsAlong(t *testing.T) {
	needsQuiet(t)
	t.Parallel()
	// A worker relays whatever is in its outbox, to its own queue.
	s := sharedWorld(t).apart(t).stage(t, "")
	t.Cleanup(s.crew.start(t, s.address))
	s.queue = "reclaim-" + s.tenant
	s.client = s.asker(s.queue)
	deployment := s.temporal.WorkerDeploymentClient().GetHandle("reclaim-" + s.tenant)
	version := func(build string) *child {
		return s.startChild("", "TEMPORAL_DEPLOYMENT_NAME=reclaim-"+s.tenant, "TEMPORAL_WORKER_BUILD_ID="+build)
	}
	makeCurrent := func(build string) {
		t.Helper()
		eventually(t, "build "+build+" becomes the current one", func() bool {
			_, err := deployment.SetCurrentVersion(s.ctx(), client.WorkerDeploymentSetCurrentVersionOptions{BuildID: build})
			return err == nil
		})
	}

	old := version("1")
	makeCurrent("1")
	s.startCharged(s.job("j1"))
	call := s.next("j1")

	version("2")
	makeCurrent("2")
	old.stop()
	call.deliver("done")
	s.assertDelivered(s.await("j1"))
	s.startCharged(s.job("j2"))
	s.next("j2").deliver("done")
	s.assertDelivered(s.await("j2"))

	described, err := s.temporal.DescribeWorkflow(s.ctx(), contract.JobWorkflowID(s.tenant, "j1"), "")
	require.NoError(t, err)
	assert.Equal(t, "2", described.RawResponse.GetWorkflowExecutionInfo().GetVersioningInfo().GetDeploymentVersion().GetBuildId())
}
