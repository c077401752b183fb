package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	temporalclient "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	"github.com/reclaimhq/reclaim/worker/localstack"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// system is a terminal on a running system: Temporal, Reclaim's worker as it is built, a worker of the product, and a
// payment channel.
type system struct {
	*terminal
	temporal temporalclient.Client
	channel  *simulator.Simulator
}

func newSystem(t *testing.T) *system {
	t.Helper()
	c := newTerminal(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	attributes := map[string]string{}
	for _, name := range contract.SearchAttributes() {
		attributes[name] = "Keyword"
	}
	server, err := localstack.StartTemporal(ctx, localstack.TemporalOptions{Headless: true, SearchAttributes: attributes})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Close()) })
	c.env["TEMPORAL_ADDRESS"] = server.Address()

	far, err := simulator.Start(simulator.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, far.Close()) })
	channels := filepath.Join(t.TempDir(), "channels.toml")
	require.NoError(t, os.WriteFile(channels, fmt.Appendf(nil, "[[channel]]\nname = \"sim\"\nkind = \"simulator\"\n"+
		"api_key_env = \"SIM_KEY\"\nwebhook_secret_env = \"SIM_SECRET\"\nbase_url = %q\n"+
		"first_query = \"100ms\"\npoll = [\"100ms\"]\ngive_up = \"500ms\"\n", far.URL()), 0o600))

	// The product's own process, so that this test needs nothing of Reclaim's other rooms.
	binary := filepath.Join(t.TempDir(), "worker")
	built, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "../worker").CombinedOutput()
	require.NoError(t, err, "%s", built)
	reclaim := exec.Command(binary, "run")
	reclaim.Env = append(os.Environ(), "DATABASE_URL="+c.base.AppURL, "TEMPORAL_ADDRESS="+server.Address(),
		"TEMPORAL_CONFIG_FILE="+c.env["TEMPORAL_CONFIG_FILE"], "RECLAIM_CHANNELS="+channels, "SIM_KEY=sk_test_simulator",
		"SIM_SECRET=whsec_simulator")
	require.NoError(t, reclaim.Start())
	t.Cleanup(func() {
		_ = reclaim.Process.Kill()
		_ = reclaim.Wait()
	})

	client, err := temporalclient.DialContext(ctx, temporalclient.Options{
		HostPort: server.Address(), Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	work := sdkworker.New(client, "gpu", sdkworker.Options{WorkerStopTimeout: 5 * time.Second})
	for name, activityFunc := range map[string]any{
		"Render": func(context.Context, any, contract.WorkMeta) (map[string]int, error) {
			return map[string]int{"frames": 3}, nil
		},
		"Fault": func(context.Context, any, contract.WorkMeta) error { return fmt.Errorf("GPU fault") },
		"Never": func(context.Context, any, contract.WorkMeta) error {
			return temporal.NewNonRetryableApplicationError("the scene is empty", "EmptyScene", nil)
		},
		"Endless": func(ctx context.Context, _ any, _ contract.WorkMeta) error {
			beat := time.NewTicker(100 * time.Millisecond)
			defer beat.Stop()
			for {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-activity.GetWorkerStopChannel(ctx):
					return fmt.Errorf("stopping")
				case <-beat.C:
					activity.RecordHeartbeat(ctx)
				}
			}
		},
	} {
		work.RegisterActivityWithOptions(activityFunc, activity.RegisterOptions{Name: name})
	}
	require.NoError(t, work.Start())
	t.Cleanup(work.Stop)
	return &system{terminal: c, temporal: client, channel: far}
}

// start submits a job by standard input.
func (s *system) start(id, work string, cost int, flags ...string) (int, map[string]any) {
	s.t.Helper()
	s.stdin = fmt.Sprintf(`{"jobId":%q,"account":"team-7","cost":%d,"promise":"10m","retry":{"maxAttempts":1},
		"work":{"activity":%q,"taskQueue":"gpu","timeout":"10m","heartbeat":"30s"}}`, id, cost, work)
	return s.json(append([]string{"job", "start", "-f", "-"}, flags...)...)
}

// becomes waits until the job's status shows the state.
func (s *system) becomes(id, state string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		_, status := s.json("job", "status", id)
		return status["state"] == state
	}, 3*time.Minute, 50*time.Millisecond)
}

// live returns the job's status with what its run says: on a busy machine status gives up on a run that does not answer at
// once.
func (s *system) live(id string) (status map[string]any) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		_, status = s.json("job", "status", id)
		waitsFor, _ := status["waitsFor"].(string)
		return !strings.HasPrefix(waitsFor, "its run, which does not answer now")
	}, 3*time.Minute, 50*time.Millisecond)
	return status
}

func TestJobVerbs(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a Temporal server")
	}
	t.Parallel()
	s := newSystem(t)
	s.ok("account", "topup", "team-7", "--amount", "1000", "--key", "order-1")

	status, verdict := s.start("done", "Render", 40)
	assert.Equal(t, statusDone, status, "%v", verdict)
	assert.NotEmpty(t, verdict["reason"])
	delete(verdict, "reason")
	assert.Equal(t, map[string]any{"tenant": "acme", "jobId": "done", "verdict": "charged", "balance": 960.0}, verdict)

	status, result := s.start("done", "Render", 40, "--wait", "end")
	assert.Equal(t, statusDone, status, "%v", result)
	assert.NotEmpty(t, result["reason"])
	delete(result, "reason")
	assert.Equal(t, map[string]any{
		"jobId": "done", "state": "succeeded", "charged": 40.0, "refunded": 0.0, "reclaimed": 0.0, "net": 40.0, "attempts": 1.0,
		"late": false, "output": map[string]any{"frames": 3.0},
	}, result)
	_, verdict = s.start("done", "Render", 40)
	assert.Equal(t, "already", verdict["verdict"])
	status, refused := s.start("done", "Render", 41)
	assert.Equal(t, statusRefused, status)
	assert.Equal(t, "Conflict", refused["code"])

	timeline := s.ok("job", "timeline", "done")
	assert.Regexp(t, `(?m)^TIME +WHAT +AMOUNT +BALANCE +IN WORDS$`, timeline)
	assert.Regexp(t, `(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ +charge +-40 +960 +account team-7 charged: `, timeline)
	_, story := s.json("job", "timeline", "done")
	assert.Equal(t, "delivered", story["timeline"].([]any)[1].(map[string]any)["kind"])
	s.refused("NotFound", "job", "timeline", "unknown")
	s.refused("NotFound", "job", "status", "unknown")
	s.refused("NotFound", "job", "cancel", "unknown")
	s.refused("BadInput", "job", "cancel", "done")

	t.Run("declined, topped up, submitted again", func(t *testing.T) {
		status, declined := s.start("dear", "Render", 5000)
		assert.Equal(t, statusRefused, status)
		assert.Equal(t, "InsufficientCredits", declined["code"])
		assert.Equal(t, "declined", declined["verdict"])
		assert.Equal(t, "same_key", declined["retry"])
		assert.Equal(t, 960.0, declined["balance"])
		got := s.run("job", "start", "-f", "-")
		assert.Equal(t, statusRefused, got.status)
		assert.Contains(t, got.stderr, "InsufficientCredits: declined")
		assert.Contains(t, got.stdout, "Verdict  declined")
		assert.Contains(t, s.ok("job", "status", "dear"), "declined")
		s.ok("account", "topup", "team-7", "--amount", "5000", "--key", "order-2")
		status, charged := s.start("dear", "Render", 5000)
		assert.Equal(t, statusDone, status)
		assert.Equal(t, "charged", charged["verdict"])
	})

	t.Run("failed for good", func(t *testing.T) {
		status, failed := s.start("empty", "Never", 10, "--wait", "end")
		assert.Equal(t, statusRefused, status)
		assert.Equal(t, "NotSucceeded", failed["code"])
		assert.Equal(t, "failed", failed["state"])
		assert.Equal(t, 0.0, failed["net"])
	})

	t.Run("a dead letter is decided by the command that status shows", func(t *testing.T) {
		s.start("dead", "Fault", 10)
		s.becomes("dead", "dead_letter")
		shown := s.ok("job", "status", "dead")
		assert.Regexp(t, `(?m)^State +dead_letter$`, shown)
		assert.Regexp(t, `(?m)^Money +charged 10, refunded 10, reclaimed 0: the customer pays 0$`, shown)
		assert.Regexp(t, `(?m)^Waits for +\S`, shown)
		_, paste, found := strings.Cut(shown, program+" job resolve dead --tenant acme --id write_off-1 ")
		require.True(t, found, shown)
		paste, _, _ = strings.Cut(paste, "\n")
		assert.Equal(t, `--action write_off --operator "$USER" --reason 'WHY'`, paste)
		decide := []string{"job", "resolve", "dead", "--id", "write_off-1", "--action", "write_off", "--operator", "ann", "--reason", "r"}
		for range 2 {
			status, answer := s.json(decide...)
			assert.Equal(t, statusDone, status)
			assert.Equal(t, map[string]any{"id": "write_off-1", "outcome": "applied", "state": "written_off"}, answer)
		}
		decide[len(decide)-1] = "another reason"
		s.refused("BadResolution", decide...)
		s.refused("BadResolution", "job", "resolve", "dead", "--id", "2", "--action", "deliver", "--operator", "ann", "--reason", "r")
	})

	t.Run("whoever waits for the end is told of a dead letter", func(t *testing.T) {
		s.start("awaited", "Fault", 10)
		s.becomes("awaited", "dead_letter")
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		told, stderr := io.Pipe()
		ended := make(chan int, 1)
		submission := strings.NewReader(s.stdin)
		go func() {
			var stdout strings.Builder
			ended <- run(ctx, []string{"job", "start", "-f", "-", "--wait", "end"}, submission, &stdout, stderr,
				func(name string) string { return s.env[name] })
			_ = stderr.Close()
		}()
		lines := bufio.NewReader(told)
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		assert.Contains(t, line, "job awaited is a dead letter (attempt 1 was its last) and waits for a person's decision")
		more := make(chan string, 1)
		go func() {
			rest, _ := io.ReadAll(lines)
			more <- string(rest)
		}()
		s.ok("job", "resolve", "awaited", "--id", "1", "--action", "write_off", "--operator", "ann", "--reason", "r")
		assert.Equal(t, statusRefused, <-ended, "a job that was written off did not succeed")
		assert.Empty(t, <-more, "it is told once")
	})

	t.Run("all that match a query are decided, after a look at them", func(t *testing.T) {
		for _, id := range []string{"many-1", "many-2", "many-3"} {
			s.start(id, "Fault", 10)
			s.becomes(id, "dead_letter")
		}
		s.start("still", "Endless", 10)
		query := `ReclaimAccount = "team-7" AND (ReclaimAttention = "dead_letter" OR WorkflowId = "job/acme/still")`
		decide := []string{"job", "resolve", "--query", query, "--id", "bulk-1", "--action", "retry", "--operator", "ann", "--reason", "r"}
		var seen map[string]any
		require.Eventually(t, func() bool {
			var status int
			status, seen = s.json(append(decide, "--dry-run")...)
			return status == statusRefused && seen["decided"] == 3.0
		}, 30*time.Second, 100*time.Millisecond, "the server lists runs a moment later")
		assert.Equal(t, 1.0, seen["refused"])
		for _, id := range []string{"many-1", "many-2", "many-3"} {
			s.becomes(id, "dead_letter")
		}
		decide[7], decide[5] = "write_off", "bulk-2"
		assert.Contains(t, s.ok(append(decide, "--dry-run")...), "Would decide  4")
		status, done := s.json(decide...)
		assert.Equal(t, statusDone, status)
		assert.Equal(t, 4.0, done["decided"])
		for _, id := range []string{"many-1", "many-2", "many-3", "still"} {
			s.becomes(id, "written_off")
		}
		s.refused("BadInput", "job", "resolve", "--query", "Nonsense ===", "--id", "b", "--action", "retry", "--operator", "ann", "--reason", "r")
		for wrong, args := range map[string][]string{
			"not both": {"job", "resolve", "many-1", "--query", query}, "goes with --query": {"job", "resolve", "many-1", "--dry-run"},
			"--query is empty": {"job", "resolve", "--query", ""},
		} {
			answer := s.run(append(args, "--id", "b", "--action", "retry", "--reason", "r")...)
			assert.Equal(t, statusUsage, answer.status)
			assert.Contains(t, answer.stderr, wrong)
		}
	})

	t.Run("an outcome from outside", func(t *testing.T) {
		s.start("outside", "Endless", 10)
		status, reported := s.json("job", "outcome", "outside", "--state", "succeeded", "--source", "callback",
			"--output-json", `{"at":"cdn"}`)
		assert.Equal(t, statusDone, status)
		assert.Equal(t, map[string]any{"tenant": "acme", "jobId": "outside", "requested": "outcome succeeded"}, reported)
		status, result := s.start("outside", "Endless", 10, "--wait", "end")
		assert.Equal(t, statusDone, status)
		assert.Equal(t, map[string]any{"at": "cdn"}, result["output"])
	})

	t.Run("canceled", func(t *testing.T) {
		s.start("stop", "Endless", 10)
		assert.Contains(t, s.ok("job", "cancel", "stop"), "Requested  cancel")
		status, canceled := s.start("stop", "Endless", 10, "--wait", "end")
		assert.Equal(t, statusRefused, status)
		assert.Equal(t, "canceled", canceled["state"])
	})

	t.Run("a job whose run was terminated is found and taken up", func(t *testing.T) {
		s.start("orphan", "Endless", 10)
		_, report := s.json("audit")
		runs := report["runs"].(map[string]any)
		assert.Equal(t, true, runs["checked"])
		assert.Equal(t, 0.0, runs["count"], "%v", runs)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		require.NoError(t, s.temporal.TerminateWorkflow(ctx, contract.JobWorkflowID("acme", "orphan"), "", "test"))
		status, report := s.json("audit")
		assert.Equal(t, statusDone, status, "no invariant is broken")
		found := report["runs"].(map[string]any)["openJobsWithoutRun"].([]any)
		require.Len(t, found, 1)
		assert.Equal(t, "orphan", found[0].(map[string]any)["jobId"])
		assert.Regexp(t, `(?m)^Open jobs without a run: 1\. .*\nTENANT +JOB +STATE +SINCE\nacme +orphan +running`, s.ok("audit"))
		stranded := s.live("orphan")
		assert.Equal(t, "a run: submit the job again, which takes it up", stranded["waitsFor"])
		got := s.run("job", "start", "-f", "-", "--timeout", "3m")
		assert.Equal(t, statusDone, got.status, got.stderr)
		_, report = s.json("audit")
		assert.Equal(t, 0.0, report["runs"].(map[string]any)["count"])
		taken := s.live("orphan")
		assert.NotEqual(t, stranded["waitsFor"], taken["waitsFor"])
		s.ok("job", "cancel", "orphan")
	})
}
