package localstack

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Shell scripts that stand in for the programs EnsureTemporal runs.
const (
	recentTemporal = "#!/bin/sh\necho 'temporal version 1.5.1 (Server 1.29.1, UI 2.42.1)'\n"
	oldTemporal    = "#!/bin/sh\necho 'temporal version 1.0.0 (Server 1.24.2, UI 2.28.0)'\n"
	failingGo      = "#!/bin/sh\necho 'dial tcp: no such host' >&2\nexit 1\n"
	// It notes what it is told and takes long enough for two copies to meet.
	fakeGo = `#!/bin/sh
echo "$@" >> "$BUILDS"
[ "$1" = build ] || exit 0
sleep 1
printf '%s\n' '#!/bin/sh' "echo 'temporal version 0.0.0-DEV (Server 1.29.1, UI 2.42.1)'" > "$3"
chmod +x "$3"
`
)

func TestEnsureTemporalPrefersThePath(t *testing.T) {
	programs, _ := emptyMachine(t)
	install(t, filepath.Join(programs, "temporal"), recentTemporal)
	path, err := EnsureTemporal(testContext(t), nil)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(programs, "temporal"), path)
}

func TestEnsureTemporalTakesTheCacheWhenThePathIsOld(t *testing.T) {
	programs, cached := emptyMachine(t)
	install(t, filepath.Join(programs, "temporal"), oldTemporal)
	install(t, cached, recentTemporal)
	path, err := EnsureTemporal(testContext(t), nil)
	require.NoError(t, err)
	assert.Equal(t, cached, path)
}

func TestEnsureTemporalBuildsOnce(t *testing.T) {
	programs, cached := emptyMachine(t)
	install(t, filepath.Join(programs, "go"), fakeGo)
	install(t, cached, oldTemporal)
	builds := filepath.Join(t.TempDir(), "builds")
	t.Setenv("BUILDS", builds)

	var mu sync.Mutex
	var told []string
	var copies sync.WaitGroup
	for range 3 {
		copies.Go(func() {
			path, err := EnsureTemporal(testContext(t), func(line string) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, line)
			})
			assert.NoError(t, err)
			assert.Equal(t, cached, path)
		})
	}
	copies.Wait()
	built, err := os.ReadFile(builds)
	require.NoError(t, err)
	assert.Regexp(t, `^get github.com/temporalio/cli/cmd/temporal@v1.5.1 modernc.org/sqlite@v[0-9.]+
build -o \S+/unfinished-\d+/temporal github.com/temporalio/cli/cmd/temporal
$`, string(built))
	assert.Contains(t, strings.Join(told, "\n"), "building the Temporal dev server, first time only")
	assert.Contains(t, strings.Join(told, "\n"), "waiting for another copy")
	left, err := filepath.Glob(filepath.Join(filepath.Dir(cached), "unfinished-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestEnsureTemporalTellsWhatIsMissing(t *testing.T) {
	programs, _ := emptyMachine(t)
	_, err := EnsureTemporal(testContext(t), nil)
	require.ErrorContains(t, err, "install the Temporal CLI")

	install(t, filepath.Join(programs, "go"), failingGo)
	_, err = EnsureTemporal(testContext(t), nil)
	require.ErrorContains(t, err, "no such host", "what go said is quoted")
}

// emptyMachine leaves only what the scripts need on PATH and an empty cache. It gives a folder
// on PATH and the path of the cached program.
func emptyMachine(t *testing.T) (programs, cached string) {
	t.Helper()
	programs = t.TempDir()
	home := t.TempDir()
	tools := t.TempDir()
	for _, tool := range []string{"sh", "sleep", "chmod"} {
		path, err := exec.LookPath(tool)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(tools, tool)))
	}
	t.Setenv("PATH", programs+":"+tools)
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(home, ".cache"))
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	return programs, filepath.Join(cache, "reclaim", "bin", "temporal")
}

func install(t *testing.T, path, script string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(script), 0o700))
}

func TestEnsureTemporalServerTakesTheContainersReleaseOnly(t *testing.T) {
	programs, cached := emptyMachine(t)
	answers := func(name, version string) string { return "#!/bin/sh\necho '" + name + " version " + version + "'\n" }
	install(t, filepath.Join(programs, "temporal-server"), answers("temporal", "1.31.0"))
	install(t, filepath.Join(filepath.Dir(cached), "temporal-server"), answers("temporal", TemporalServerVersion))
	install(t, filepath.Join(programs, "temporal-sql-tool"), answers("temporal-sql-tool", TemporalServerVersion))
	server, sql, err := EnsureTemporalServer(testContext(t), nil)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(filepath.Dir(cached), "temporal-server"), server)
	assert.Equal(t, filepath.Join(programs, "temporal-sql-tool"), sql)

	builds := filepath.Join(t.TempDir(), "builds")
	t.Setenv("BUILDS", builds)
	install(t, filepath.Join(programs, "temporal-sql-tool"), answers("temporal-sql-tool", "1.32.0"))
	install(t, filepath.Join(programs, "go"), "#!/bin/sh\necho \"$@\" >> \"$BUILDS\"\n[ \"$1\" = build ] || exit 0\n"+
		"printf '#!/bin/sh\\necho temporal-sql-tool version "+TemporalServerVersion+"\\n' > \"$3\"\nchmod +x \"$3\"\n")
	_, sql, err = EnsureTemporalServer(testContext(t), nil)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(filepath.Dir(cached), "temporal-sql-tool"), sql)
	built, err := os.ReadFile(builds)
	require.NoError(t, err)
	assert.Regexp(t, `^get go.temporal.io/server/cmd/tools/sql@v`+regexp.QuoteMeta(TemporalServerVersion)+`
build -o \S+/temporal-sql-tool go.temporal.io/server/cmd/tools/sql
$`, string(built))
}

func TestAProgramWhoseSQLiteBreaksByCanceledRequestsWillNotDo(t *testing.T) {
	for version, breaks := range map[string]bool{"v1.34.1": true, "v1.50.9": true, "v1.51.0": false, "v1.62.0": false} {
		assert.Equal(t, breaks, losesInterrupted([]*debug.Module{
			{Path: "modernc.org/libc", Version: "v1.0.0"}, {Path: "modernc.org/sqlite", Version: version},
		}), version)
	}
	assert.False(t, losesInterrupted(nil))
}
