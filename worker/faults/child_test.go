package faults_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var binary = struct {
	sync.Once
	path string
	err  error
}{}

// workerBinary builds the worker once.
func workerBinary(t *testing.T) string {
	t.Helper()
	binary.Do(func() {
		var folder string
		if folder, binary.err = os.MkdirTemp("", "reclaim-faults-"); binary.err != nil {
			return
		}
		atExit = append(atExit, func() error { return os.RemoveAll(folder) })
		binary.path = filepath.Join(folder, "worker")
		output, err := exec.Command("go", "build", "-o", binary.path, "github.com/reclaimhq/reclaim/worker").CombinedOutput()
		if err != nil {
			binary.err = fmt.Errorf("build the worker: %w\n%s", err, output)
		}
	})
	require.NoError(t, binary.err)
	return binary.path
}

// child is a process of ours.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	log    *lines
	exited chan struct{}
	ended  error
}

// lines keeps what a process says.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// startChild runs `worker run` on the stage's queue, with more of an environment, and waits until it polls. An empty
// databaseURL means the world's.
func (s *stage) startChild(databaseURL string, environment ...string) *child {
	s.t.Helper()
	return s.startProgram(exec.Command(workerBinary(s.t), "run"), `"polling"`, databaseURL, environment...)
}

// startProgram runs a program that is set up as the worker is, and waits until it says that it is ready.
func (s *stage) startProgram(program *exec.Cmd, ready, databaseURL string, environment ...string) *child {
	s.t.Helper()
	if databaseURL == "" {
		databaseURL = s.database.AppURL
	}
	c := &child{t: s.t, cmd: program, log: &lines{}, exited: make(chan struct{})}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "TEMPORAL_") && !strings.HasPrefix(entry, "RECLAIM_") && !strings.HasPrefix(entry, "PG") {
			c.cmd.Env = append(c.cmd.Env, entry)
		}
	}
	c.cmd.Env = append(c.cmd.Env, "DATABASE_URL="+databaseURL, "TEMPORAL_ADDRESS="+s.address, "RECLAIM_TASK_QUEUE="+s.queue,
		"RECLAIM_CONNECTIONS=4")
	c.cmd.Env = append(c.cmd.Env, environment...)
	c.cmd.Stderr = c.log
	endWithParent(c.cmd)
	require.NoError(s.t, c.cmd.Start())
	go func() {
		c.ended = c.cmd.Wait()
		close(c.exited)
	}()
	s.t.Cleanup(func() {
		c.kill()
		if s.t.Failed() {
			s.t.Logf("a process of %s said:\n%s", s.queue, c.log)
		}
	})
	eventually(s.t, "the process is ready", func() bool {
		select {
		case <-c.exited:
			s.t.Fatalf("the process ended by itself: %v", c.ended)
		default:
		}
		return strings.Contains(c.log.String(), ready)
	})
	return c
}

// kill ends the process as a crash does and waits until it is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.exited
}

// stop asks the process to end, as a deploy does, and says how long it took.
func (c *child) stop() time.Duration {
	c.t.Helper()
	asked := time.Now()
	require.NoError(c.t, c.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-c.exited:
	case <-time.After(patience):
		c.t.Fatalf("the worker did not stop within %s of SIGTERM", patience)
	}
	require.NoError(c.t, c.ended)
	return time.Since(asked)
}
