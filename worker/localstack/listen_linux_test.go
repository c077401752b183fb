package localstack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestServersListenOnThisMachineOnly(t *testing.T) {
	t.Parallel()
	postgres := startPostgres(t, PostgresOptions{})
	temporal := startTemporal(t, TemporalOptions{})
	for name, server := range map[string]*process{"postgres": postgres.server, "temporal": temporal.server} {
		addresses := listening(t, server.pid)
		assert.NotEmpty(t, addresses, name)
		for _, address := range addresses {
			// 127.0.0.1 as the kernel writes it, on a little-endian or a big-endian machine.
			assert.Regexp(t, "^(0100007F|7F000001):", address, name)
		}
	}
}

// listening gives the local addresses of the process's listening TCP sockets, as the kernel writes
// them.
func listening(t *testing.T, pid int) (addresses []string) {
	t.Helper()
	sockets := map[string]bool{}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	require.NoError(t, err)
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil {
			sockets[target] = true
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			const local, state, inode, listens = 1, 3, 9, "0A"
			fields := strings.Fields(line)
			if len(fields) > inode && fields[state] == listens && sockets["socket:["+fields[inode]+"]"] {
				addresses = append(addresses, fields[local])
			}
		}
	}
	return addresses
}
