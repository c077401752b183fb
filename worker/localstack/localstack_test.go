package localstack

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ownerEnv makes this test binary start servers, tell about them, and wait to be killed.
const ownerEnv = "RECLAIM_LOCALSTACK_OWNER"

// owned is what the owner of servers tells about them.
type owned struct {
	Family []int
	Dirs   []string
}

func TestMain(m *testing.M) {
	if os.Getenv(ownerEnv) != "" {
		if err := ownServers(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func ownServers() error {
	postgres, err := StartPostgres(context.Background(), PostgresOptions{})
	if err != nil {
		return err
	}
	temporal, err := StartTemporal(context.Background(), TemporalOptions{Headless: true})
	if err != nil {
		return err
	}
	children, err := childrenOf(postgres.server.pid)
	if err != nil {
		return err
	}
	// On systems whose kernel does not signal orphans, a shell does.
	sleeper := exec.Command("sleep", "600")
	if err := sleeper.Start(); err != nil {
		return err
	}
	if _, err := watchByShell(sleeper.Process.Pid, syscall.SIGINT); err != nil {
		return err
	}
	family := append(children, postgres.server.pid, temporal.server.pid, sleeper.Process.Pid)
	dirs := []string{filepath.Dir(postgres.Dir()), filepath.Dir(temporal.Dir())}
	if err := json.NewEncoder(os.Stdout).Encode(owned{Family: family, Dirs: dirs}); err != nil {
		return err
	}
	select {}
}

func TestServersEndWithTheirOwner(t *testing.T) {
	t.Parallel()
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerEnv+"=1")
	owner.Stderr = os.Stderr
	output, err := owner.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, owner.Start())
	line, err := bufio.NewReader(output).ReadBytes('\n')
	require.NoError(t, err)
	var servers owned
	require.NoError(t, json.Unmarshal(line, &servers))
	t.Cleanup(func() {
		for _, dir := range servers.Dirs {
			_ = os.RemoveAll(dir)
		}
	})
	for _, pid := range servers.Family {
		assert.True(t, alive(pid))
	}

	require.NoError(t, owner.Process.Kill())
	_ = owner.Wait()
	assert.Eventually(t, func() bool {
		for _, pid := range servers.Family {
			if alive(pid) {
				return false
			}
		}
		return true
	}, 20*time.Second, 20*time.Millisecond)
}

func TestShellWatchIsCalledOff(t *testing.T) {
	t.Parallel()
	sleeper := exec.Command("sleep", "60")
	require.NoError(t, sleeper.Start())
	ended := make(chan error, 1)
	go func() { ended <- sleeper.Wait() }()
	release, err := watchByShell(sleeper.Process.Pid, syscall.SIGINT)
	require.NoError(t, err)
	release()
	select {
	case <-ended:
		t.Fatal("a watch that was called off must not signal")
	default:
	}

	// That a watch fires is shown by TestServersEndWithTheirOwner.
	require.NoError(t, sleeper.Process.Kill())
	require.Error(t, <-ended)
}

func TestFreePortsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 50 {
		port, err := FreePort()
		require.NoError(t, err)
		assert.False(t, seen[port])
		assert.Less(t, port, 32768)
		seen[port] = true
	}
}

func TestAbandonedFoldersAreRemoved(t *testing.T) {
	parent := t.TempDir()
	t.Setenv("TMPDIR", parent)
	make := func(name string, age time.Duration) string {
		dir := filepath.Join(parent, temporaryPrefix+name)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "postgres"), 0o700))
		lock, err := tryLock(filepath.Join(dir, "postgres", "lock"))
		require.NoError(t, err)
		if name == "used" {
			t.Cleanup(func() { _ = lock.Close() })
		} else {
			require.NoError(t, lock.Close())
		}
		then := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(dir, then, then))
		return dir
	}
	abandoned, used, young := make("abandoned", time.Hour), make("used", time.Hour), make("young", 0)
	removeAbandoned()
	assert.NoDirExists(t, abandoned)
	assert.DirExists(t, used)
	assert.DirExists(t, young)
}

// testContext bounds everything a test waits for.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// openDir makes a folder that every user may enter, unlike t.TempDir.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "localstack-test-*")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// familyOf gives a server and its children.
func familyOf(t *testing.T, server *process) []int {
	t.Helper()
	children, err := childrenOf(server.pid)
	require.NoError(t, err)
	return append(children, server.pid)
}

func assertGone(t *testing.T, family []int) {
	t.Helper()
	for _, pid := range family {
		assert.False(t, alive(pid), "process %d is left behind", pid)
	}
}

func assertClosed(t *testing.T, exited <-chan struct{}) {
	t.Helper()
	select {
	case <-exited:
	default:
		t.Error("the server has not ended")
	}
}
