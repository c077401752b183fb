package localstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
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
	pkg      string // what `go install` is told
	takes    string // how long its build takes, in words
	wanted   string // which releases will do, in words
	elsewise string // how to come by it without Go
	suits    func(version string) bool
}

// temporalTool is the newest release that `go install` accepts; it runs server 1.29.1.
var temporalTool = tool{
	file: "temporal", what: "the Temporal dev server", pkg: "github.com/temporalio/cli/cmd/temporal@v1.5.1",
	takes: "about three minutes", wanted: "server 1.29.0 or newer",
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
// or newer: the one on PATH, else the one in the user's cache folder, which is built with the Go
// toolchain the first time; that takes minutes, and progress (which may be nil) is told about it.
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
	return err == nil && t.suits(string(output))
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

	var output bytes.Buffer
	command := exec.CommandContext(ctx, "go", "install", t.pkg)
	// A folder outside any module, and no flags or targets meant for the user's own builds.
	command.Dir = folder
	command.Env = append(cleanEnv("GOFLAGS=", "GOWORK=", "GOOS=", "GOARCH=", "GOBIN="), "GOBIN="+folder)
	command.Stdout, command.Stderr = &output, &output
	// The compilers that go runs must end with it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	if err := command.Start(); err != nil {
		return fmt.Errorf("build %s: %w", t.what, err)
	}
	if err := t.tellUntilDone(command.Wait, progress); err != nil {
		return fmt.Errorf("build %s with `go install %s`: %w; it said:\n%s", t.what, t.pkg, errors.Join(err, ctx.Err()), output.Bytes())
	}
	// `go install` names the program after its folder.
	folderName, _, _ := strings.Cut(filepath.Base(t.pkg), "@")
	if err := os.Rename(filepath.Join(folder, folderName), path); err != nil {
		return fmt.Errorf("put %s in its place: %w", t.what, err)
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
