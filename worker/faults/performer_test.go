package faults_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// score says how a job's work goes. It is the work's input, so that any process can do it, and one can take it over from
// another that was killed.
type score struct {
	// Turns are the attempts; the last stands for all after it.
	Turns []turn `json:"turns"`
}

// turn is how one attempt goes. Without another word it delivers.
type turn struct {
	Takes time.Duration `json:"takes,omitempty"`
	// Waits until the job is let go.
	Waits bool `json:"waits,omitempty"`
	// Fails in the end, and Hopeless: for good.
	Fails    bool `json:"fails,omitempty"`
	Hopeless bool `json:"hopeless,omitempty"`
	// Silent keeps its result and does not answer within its time.
	Silent bool `json:"silent,omitempty"`
}

// studio is a folder where results are kept under their idempotency keys, and where the work tells how far it is.
type studio string

func (s studio) file(name string) string { return filepath.Join(string(s), name) }

// letGo is there once a job's waiting work may go on.
func (s studio) letGo(tenant, jobID string) string { return s.file(tenant + "." + jobID + ".go") }

// begun is there once an attempt has begun.
func (s studio) begun(tenant, jobID string, attempt int) string {
	return s.file(fmt.Sprintf("%s.%s.%d.begun", tenant, jobID, attempt))
}

// probed is there once it was asked what became of an attempt.
func (s studio) probed(tenant, jobID string) string { return s.file(tenant + "." + jobID + ".probed") }

// result is there once the work was done under the key.
func (s studio) result(meta contract.WorkMeta) string {
	sum := sha256.Sum256([]byte(meta.IdempotencyKey))
	return s.file(meta.Tenant + "." + meta.JobID + "." + hex.EncodeToString(sum[:8]) + ".result")
}

// results counts the keys under which a job's work was done.
func (s studio) results(tenant, jobID string) (int, error) {
	found, err := filepath.Glob(s.file(tenant + "." + jobID + ".*.result"))
	return len(found), err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func touch(path string) error { return os.WriteFile(path, []byte(`"done"`), 0o600) }

// perform does one attempt.
func (s studio) perform(ctx context.Context, input score, meta contract.WorkMeta) (json.RawMessage, error) {
	if err := touch(s.begun(meta.Tenant, meta.JobID, meta.Attempt)); err != nil {
		return nil, err
	}
	this, result := input.Turns[min(meta.Attempt, len(input.Turns))-1], s.result(meta)
	over := time.After(this.Takes)
	for waiting := true; waiting && !exists(result); {
		select {
		case <-over:
			waiting = this.Waits && !exists(s.letGo(meta.Tenant, meta.JobID))
			over = time.After(100 * time.Millisecond)
		case <-time.After(100 * time.Millisecond):
		}
		heartbeat(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	switch {
	case this.Hopeless:
		return nil, temporal.NewNonRetryableApplicationError("no such scene", "BadScene", nil)
	case this.Fails:
		return nil, errBusy
	}
	if err := touch(result); err != nil {
		return nil, err
	}
	for this.Silent && ctx.Err() == nil {
		heartbeat(ctx)
		<-time.After(100 * time.Millisecond)
	}
	return json.RawMessage(`"done"`), ctx.Err()
}

// probe looks where results are kept.
func (s studio) probe(_ context.Context, meta contract.WorkMeta) (contract.ProbeAnswer, error) {
	if err := touch(s.probed(meta.Tenant, meta.JobID)); err != nil {
		return contract.ProbeAnswer{}, err
	}
	if !exists(s.result(meta)) {
		return contract.ProbeAnswer{State: contract.ProbeUnknown}, nil
	}
	return contract.ProbeAnswer{State: contract.ProbeSucceeded, Output: json.RawMessage(`"done"`)}, nil
}

// startPerformer runs a worker for scored work, set up as the guide tells work workers to be.
func (s studio) startPerformer(address, queue string) (stop func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var c client.Client
	// It may be started while the server is away.
	if waitFor(ctx, func() bool {
		c, err = client.DialContext(ctx, client.Options{
			HostPort: address, RPCTimeout: workRPCTimeout, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
		})
		return err == nil
	}); err != nil {
		return nil, err
	}
	worker := sdkworker.New(c, queue, sdkworker.Options{
		DefaultHeartbeatThrottleInterval: 500 * time.Millisecond, MaxHeartbeatThrottleInterval: 500 * time.Millisecond,
		MaxConcurrentActivityTaskPollers: 4, DisableRegistrationAliasing: true,
	})
	worker.RegisterActivityWithOptions(s.perform, activity.RegisterOptions{Name: workActivity})
	worker.RegisterActivityWithOptions(s.probe, activity.RegisterOptions{Name: probeActivity})
	if err := worker.Start(); err != nil {
		return nil, err
	}
	return func() {
		worker.Stop()
		c.Close()
	}, nil
}

// performerEnv makes this program a process that does scored work: its value is "address queue folder".
const performerEnv = "RECLAIM_TEST_PERFORMER"

// performUntilKilled is what such a process does.
func performUntilKilled(settings string) int {
	fields := strings.SplitN(settings, " ", 3)
	if _, err := studio(fields[2]).startPerformer(fields[0], fields[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprintln(os.Stderr, "performing")
	select {}
}

// startPerforming runs a process that does scored work.
func (s *stage) startPerforming(queue string, at studio) *child {
	s.t.Helper()
	program, err := os.Executable()
	require.NoError(s.t, err)
	return s.startProgram(exec.Command(program), "performing", "", fmt.Sprintf("%s=%s %s %s", performerEnv, s.address, queue, at))
}

// scored gives a job such work on the queue.
func scored(t *testing.T, queue string, turns ...turn) func(*contract.Job) {
	t.Helper()
	input, err := json.Marshal(score{turns})
	require.NoError(t, err)
	return func(j *contract.Job) {
		j.Work.TaskQueue, j.Work.Input = queue, input
		j.Work.Heartbeat, j.Work.Timeout = contract.Duration(10*time.Second), contract.Duration(2*time.Minute)
		j.Retry.MaxAttempts = 10
	}
}
