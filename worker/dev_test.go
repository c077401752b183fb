package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/worker/devstack"
)

func TestDevKeepsItsDataAndLeavesNoProcess(t *testing.T) {
	// A folder that every user may enter, unlike t.TempDir: Postgres does not run as root.
	dir, err := os.MkdirTemp("", "reclaim-dev-test-*")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))

	first := startDev(t, devstack.Options{Dir: dir})
	assert.ErrorContains(t, dev(t.Context(), devstack.Options{Dir: dir}, false, nil, io.Discard), "--data FOLDER",
		"a second start in the same folder")
	info, err := os.Stat(filepath.Join(dir, "env"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "it holds passwords")
	topUp := client.Movement{Tenant: "acme", Actor: "me", Account: "team-7", Key: "first", Amount: 1000}
	assert.False(t, first.move(t, topUp).Already)
	asked := time.Now()
	first.stop()
	require.NoError(t, <-first.ended)
	assert.Less(t, time.Since(asked), 30*time.Second)
	first.assertGone(t)

	second := startDev(t, devstack.Options{Dir: dir})
	assert.True(t, second.move(t, topUp).Already, "a second start finds the data")
	require.NoError(t, syscall.Kill(second.processes[1], syscall.SIGKILL))
	require.ErrorContains(t, <-second.ended, "the render worker has ended by itself (signal: killed)")
	second.assertGone(t)
}

// running is a dev command under test.
type running struct {
	stop      context.CancelFunc
	ended     chan error
	database  string
	addresses []string
	processes []int
}

var (
	processLine  = regexp.MustCompile(`as process (\d+)`)
	databaseLine = regexp.MustCompile(`export DATABASE_URL='(.*)'`)
	temporalLine = regexp.MustCompile(`export TEMPORAL_ADDRESS=(\S+)`)
	uiLine       = regexp.MustCompile(`Web UI +http://([^/]+)/`)
)

func startDev(t *testing.T, options devstack.Options) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{stop: stop, ended: make(chan error, 1)}
	out := &console{}
	go func() {
		r.ended <- dev(ctx, options, false, nil, out)
		close(r.ended)
	}()
	t.Cleanup(func() {
		stop()
		for range r.ended { // until it is closed
		}
	})
	require.Eventually(t, func() bool { return bytes.Contains(out.text(), []byte("Ctrl-C stops everything")) },
		2*time.Minute, 50*time.Millisecond)
	text := string(out.text())
	r.database = databaseLine.FindStringSubmatch(text)[1]
	parsed, err := url.Parse(r.database)
	require.NoError(t, err)
	require.Contains(t, text, "/namespaces/default/workflows?query=ReclaimAttention+IS+NOT+NULL", "the Web UI's views")
	r.addresses = []string{parsed.Host, temporalLine.FindStringSubmatch(text)[1], uiLine.FindStringSubmatch(text)[1]}
	for _, match := range processLine.FindAllStringSubmatch(text, -1) {
		pid, err := strconv.Atoi(match[1])
		require.NoError(t, err)
		r.processes = append(r.processes, pid)
	}
	require.Len(t, r.processes, 2)
	return r
}

// move tops an account up as the printed login.
func (r *running) move(t *testing.T, m client.Movement) client.Moved {
	t.Helper()
	store, err := schema.Open(t.Context(), r.database, schema.Options{})
	require.NoError(t, err)
	defer store.Close()
	moved, err := client.New(nil, store, "").TopUp(t.Context(), m)
	require.NoError(t, err)
	return moved
}

func (r *running) assertGone(t *testing.T) {
	t.Helper()
	for _, pid := range r.processes {
		assert.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	}
	for _, address := range r.addresses {
		connection, err := net.Dial("tcp", address)
		if !assert.ErrorIs(t, err, syscall.ECONNREFUSED, address) {
			_ = connection.Close()
		}
	}
}

// console is written by one goroutine and read by another.
type console struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// Write appends to the text.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buffer.Write(p)
}

func (c *console) text() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.buffer.Bytes())
}
