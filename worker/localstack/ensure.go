package localstack

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/mod/semver"
)

const (
	toolBuilds     = 30 * time.Minute // minutes on two cores, more on a slow network
	tellsEvery     = 10 * time.Second
	lockPolls      = 200 * time.Millisecond
	versionAnswers = 10 * time.Second
)

// tool is a program that is built with the Go toolchain where this machine lacks it.
type tool struct {
	file     string // its name on PATH and in the cache folder
	what     string // its name in sentences
	pkg      string // the package, at its release
	raised   string // a dependency of it that is built at a newer release than it asks for; none where empty
	takes    string // how long its build takes, in words
	wanted   string // which releases will do, in words
	elsewise string // how to come by it without Go
	suits    func(version string) bool
}

// sqliteModule is the dev server's database. Up to 1.50 a request that is canceled at the wrong moment interrupts its one
// connection for good, so that every later request fails with "interrupted (9)" until the server is restarted, or loses the
// connection, and with it all that the server had in memory (github.com/temporalio/temporal pull requests 9198 and 10427).
const (
	sqliteModule = "modernc.org/sqlite"
	oldestSQLite = "v1.51.0"
)

// temporalTool is the newest release that can be built by its module's path; it runs server 1.29.1.
var temporalTool = tool{
	file: "temporal", what: "the Temporal dev server", pkg: "github.com/temporalio/cli/cmd/temporal@v1.5.1",
	raised: sqliteModule + "@v1.62.0",
	takes:  "about three minutes", wanted: "server 1.29.0 or newer and " + sqliteModule + " " + oldestSQLite + " or newer",
	elsewise: "install the Temporal CLI (https://docs.temporal.io/cli)", suits: isRecentVersion,
}

// TemporalServerVersion is the release of the full server: docker-compose.yml names its images.
const TemporalServerVersion = "1.32.1"

var (
	serverTool  = fullServerTool("temporal-server", "the Temporal server", "cmd/server", "about ten minutes")
	sqlTool     = fullServerTool("temporal-sql-tool", "the Temporal SQL tool", "cmd/tools/sql", "a minute")
	fullVersion = regexp.MustCompile(`(?m) ` + regexp.QuoteMeta(TemporalServerVersion) + `$`)
)

func fullServerTool(file, what, folder, takes string) tool {
	return tool{
		file: file, what: what, pkg: "go.temporal.io/server/" + folder + "@v" + TemporalServerVersion, takes: takes,
		wanted:   "version " + TemporalServerVersion,
		elsewise: "take " + file + " out of the image temporalio/server or temporalio/admin-tools",
		suits:    fullVersion.MatchString,
	}
}

// oldestTemporal is the oldest server that the workflows are tested with.
var oldestTemporal = [3]int{1, 29, 0}

var devServerVersion = regexp.MustCompile(`Server (\d+)\.(\d+)\.(\d+)`)

// EnsureTemporal gives the path of a `temporal` program whose development server is version 1.29.0
// or newer, with a SQLite that survives canceled requests: the one on PATH, else the one in the user's
// cache folder, which is built with the Go toolchain the first time; that takes minutes, and progress
// (which may be nil) is told about it.
//
// Errors tell that the Go toolchain is missing, or quote what it said.
func EnsureTemporal(ctx context.Context, progress func(string)) (binaryPath string, err error) {
	return temporalTool.ensure(ctx, progress)
}

// EnsureTemporalServer gives, as EnsureTemporal does, the paths of the full server and of the tool
// that sets its databases up, both of the version that the containers have.
func EnsureTemporalServer(ctx context.Context, progress func(string)) (server, sql string, err error) {
	if server, err = serverTool.ensure(ctx, progress); err != nil {
		return "", "", err
	}
	sql, err = sqlTool.ensure(ctx, progress)
	return server, sql, err
}

func (t tool) ensure(ctx context.Context, progress func(string)) (binaryPath string, err error) {
	progress = quiet(progress)
	if path, err := exec.LookPath(t.file); err == nil && t.isRight(ctx, path) {
		return path, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder for %s: %w", t.what, err)
	}
	path := filepath.Join(cache, "reclaim", "bin", t.file)
	if t.isRight(ctx, path) {
		return path, nil
	}
	if _, err := exec.LookPath("go"); err != nil {
		return "", fmt.Errorf("no `%s` with %s on PATH, and no `go` to build it: %s or Go (https://go.dev/dl)", t.file, t.wanted, t.elsewise)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder for %s: %w", t.what, err)
	}
	lock, err := waitLock(ctx, path+".lock", func() {
		progress(fmt.Sprintf("waiting for another copy to build %s, %s…", t.what, t.takes))
	})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if t.isRight(ctx, path) {
		return path, nil
	}
	if err := t.build(ctx, path, progress); err != nil {
		return "", err
	}
	if !t.isRight(ctx, path) {
		return "", fmt.Errorf("%s just built in %s does not report %s: try `%s --version`", t.what, path, t.wanted, path)
	}
	return path, nil
}

// isRight tells whether the program exists, runs here, and is of a release that will do.
func (t tool) isRight(ctx context.Context, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, versionAnswers)
	defer cancel()
	output, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil || !t.suits(string(output)) {
		return false
	}
	built, err := buildinfo.ReadFile(path)
	return err != nil || !losesInterrupted(built.Deps) // a script that calls the program tells nothing
}

// losesInterrupted tells of a program by its modules whether its SQLite breaks by canceled requests.
func losesInterrupted(modules []*debug.Module) bool {
	return slices.ContainsFunc(modules, func(m *debug.Module) bool {
		return m.Path == sqliteModule && semver.Compare(m.Version, oldestSQLite) < 0
	})
}

// isRecentVersion reads a line like "temporal version 1.5.1 (Server 1.29.1, UI 2.42.1)".
func isRecentVersion(output string) bool {
	match := devServerVersion.FindStringSubmatch(output)
	if match == nil {
		return false
	}
	for i, oldest := range oldestTemporal {
		number, err := strconv.Atoi(match[i+1])
		if err != nil || number < oldest {
			return false
		}
		if number > oldest {
			return true
		}
	}
	return true
}

// build builds the program beside its path and renames it when it is complete.
func (t tool) build(ctx context.Context, path string, progress func(string)) (err error) {
	ctx, cancel := context.WithTimeout(ctx, toolBuilds)
	defer cancel()
	folder, err := os.MkdirTemp(filepath.Dir(path), "unfinished-*")
	if err != nil {
		return fmt.Errorf("make a folder to build %s in: %w", t.what, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()

	program := filepath.Join(folder, t.file)
	if err := t.tellUntilDone(func() error { return t.compile(ctx, folder, program) }, progress); err != nil {
		return fmt.Errorf("build %s of %s: %w", t.what, t.pkg, errors.Join(err, ctx.Err()))
	}
	if err := os.Rename(program, path); err != nil {
		return fmt.Errorf("put %s in its place: %w", t.what, err)
	}
	return nil
}

// compile builds the program in the folder, in which it makes a module.
func (t tool) compile(ctx context.Context, folder, program string) error {
	if err := os.WriteFile(filepath.Join(folder, "go.mod"), []byte("module tool\n"), 0o600); err != nil {
		return err
	}
	path, _, _ := strings.Cut(t.pkg, "@")
	get := []string{"get", t.pkg}
	if t.raised != "" {
		get = append(get, t.raised)
	}
	for _, arguments := range [][]string{get, {"build", "-o", program, path}} {
		command := exec.CommandContext(ctx, "go", arguments...)
		command.Dir = folder
		// No flags or targets meant for the user's own builds.
		command.Env = cleanEnv("GOFLAGS=", "GOWORK=", "GOOS=", "GOARCH=", "GOBIN=")
		// The compilers that go runs must end with it.
		command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("`go %s`: %w; it said:\n%s", strings.Join(arguments, " "), err, output)
		}
	}
	return nil
}

// tellUntilDone runs wait and meanwhile tells how long it has been.
func (t tool) tellUntilDone(wait func() error, progress func(string)) error {
	message := fmt.Sprintf("building %s, first time only, takes %s…", t.what, t.takes)
	progress(message)
	start := time.Now()
	done := make(chan error, 1)
	go func() { done <- wait() }()
	ticker := time.NewTicker(tellsEvery)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ticker.C:
			progress(fmt.Sprintf("%s %d s", message, int(time.Since(start).Seconds())))
		}
	}
}

// waitLock takes the lock of a file, waiting for as long as ctx allows; waiting is called once when
// another process holds it.
func waitLock(ctx context.Context, path string, waiting func()) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, toolBuilds)
	defer cancel()
	for attempt := 0; ; attempt++ {
		lock, err := tryLock(path)
		if lock != nil || err != nil {
			return lock, err
		}
		if attempt == 0 {
			waiting()
		}
		if err := pause(ctx, lockPolls); err != nil {
			return nil, fmt.Errorf("wait for another copy that holds %s: %w", path, err)
		}
	}
}
