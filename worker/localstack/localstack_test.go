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
	}, 2*time.Minute, 20*time.Millisecond)
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
	aged := func(paths ...string) {
		then := time.Now().Add(-time.Minute)
		for _, path := range paths {
			require.NoError(t, os.Chtimes(path, then, then))
		}
	}
	// A folder as a program makes it, and its lock, which a killed program has given up.
	temporary := func(name string) (dir, place string, lock *os.File) {
		dir = filepath.Join(parent, temporaryPrefix+name)
		place = filepath.Join(dir, "postgres")
		require.NoError(t, os.MkdirAll(filepath.Join(place, "data"), 0o700))
		lock, err := tryLock(filepath.Join(place, "lock"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = lock.Close() })
		return dir, place, lock
	}
	abandoned, place, lock := temporary("abandoned")
	require.NoError(t, lock.Close())
	require.NoError(t, os.WriteFile(filepath.Join(place, "data", "postmaster.pid"), []byte("999999999\n/data\n"), 0o600))
	aged(place, abandoned)
	used, place, _ := temporary("used")
	aged(place, used)
	served, place, lock := temporary("served")
	require.NoError(t, lock.Close())
	pid := fmt.Sprintf("%d\n/data\n", os.Getpid())
	require.NoError(t, os.WriteFile(filepath.Join(place, "data", "postmaster.pid"), []byte(pid), 0o600))
	aged(place, served)
	young, _, lock := temporary("young")
	require.NoError(t, lock.Close())
	empty := filepath.Join(parent, temporaryPrefix+"empty")
	require.NoError(t, os.Mkdir(empty, 0o700))
	aged(empty)
	// Not what a program of ours makes: a link to another folder, a link in the place of the lock, and another's folder.
	elsewhere := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "file"), nil, 0o600))
	aged(elsewhere)
	link := filepath.Join(parent, temporaryPrefix+"link")
	require.NoError(t, os.Symlink(elsewhere, link))
	linked, place, lock := temporary("linked")
	require.NoError(t, lock.Close())
	require.NoError(t, os.Remove(lock.Name()))
	require.NoError(t, os.Symlink(filepath.Join(elsewhere, "file"), lock.Name()))
	aged(place, linked)
	kept := []string{used, served, young, link, linked, filepath.Join(elsewhere, "file")}
	if os.Geteuid() == 0 {
		foreign, place, lock := temporary("foreign")
		require.NoError(t, lock.Close())
		require.NoError(t, os.Chown(foreign, 12345, 12345))
		aged(place, foreign)
		kept = append(kept, foreign)
	}

	removeAbandoned()
	assert.NoDirExists(t, abandoned)
	assert.NoDirExists(t, empty)
	for _, path := range kept {
		_, err := os.Lstat(path)
		assert.NoError(t, err)
	}
}

// testContext bounds everything a test waits for.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
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
