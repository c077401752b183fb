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
	"syscall"
	"time"
)

const (
	// temporalPackage is the newest release that `go install` accepts; it runs server 1.29.1.
	temporalPackage = "github.com/temporalio/cli/cmd/temporal@v1.5.1"

	temporalBuilds = 30 * time.Minute // three minutes on two cores, more on a slow network
	tellsEvery     = 10 * time.Second
	lockPolls      = 200 * time.Millisecond
	versionAnswers = 10 * time.Second
)

// oldestTemporal is the oldest server that the workflows are tested with.
var oldestTemporal = [3]int{1, 29, 0}

var serverVersion = regexp.MustCompile(`Server (\d+)\.(\d+)\.(\d+)`)

// EnsureTemporal gives the path of a `temporal` program whose development server is version 1.29.0
// or newer: the one on PATH, else the one in the user's cache folder, which is built with the Go
// toolchain the first time; that takes minutes, and progress (which may be nil) is told about it.
//
// Errors tell that the Go toolchain is missing, or quote what it said.
func EnsureTemporal(ctx context.Context, progress func(string)) (binaryPath string, err error) {
	progress = quiet(progress)
	if path, err := exec.LookPath("temporal"); err == nil && isRecentTemporal(ctx, path) {
		return path, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder for the Temporal dev server: %w", err)
	}
	path := filepath.Join(cache, "reclaim", "bin", "temporal")
	if isRecentTemporal(ctx, path) {
		return path, nil
	}
	if _, err := exec.LookPath("go"); err != nil {
		return "", errors.New("no `temporal` with server 1.29.0 or newer on PATH, and no `go` to build it: install the Temporal CLI (https://docs.temporal.io/cli) or Go (https://go.dev/dl)")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder for the Temporal dev server: %w", err)
	}
	lock, err := waitLock(ctx, path+".lock", func() {
		progress("waiting for another copy to build the Temporal dev server, about three minutes…")
	})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if isRecentTemporal(ctx, path) {
		return path, nil
	}
	if err := buildTemporal(ctx, path, progress); err != nil {
		return "", err
	}
	if !isRecentTemporal(ctx, path) {
		return "", fmt.Errorf("the Temporal dev server just built in %s does not report version 1.29.0 or newer: try `%s --version`", path, path)
	}
	return path, nil
}

// isRecentTemporal tells whether the program exists, runs here, and has a recent enough server.
func isRecentTemporal(ctx context.Context, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, versionAnswers)
	defer cancel()
	output, err := exec.CommandContext(ctx, path, "--version").Output()
	return err == nil && isRecentVersion(string(output))
}

// isRecentVersion reads a line like "temporal version 1.5.1 (Server 1.29.1, UI 2.42.1)".
func isRecentVersion(output string) bool {
	match := serverVersion.FindStringSubmatch(output)
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

// buildTemporal builds the program beside its path and renames it when it is complete.
func buildTemporal(ctx context.Context, path string, progress func(string)) (err error) {
	ctx, cancel := context.WithTimeout(ctx, temporalBuilds)
	defer cancel()
	folder, err := os.MkdirTemp(filepath.Dir(path), "unfinished-*")
	if err != nil {
		return fmt.Errorf("make a folder to build the Temporal dev server in: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()

	var output bytes.Buffer
	command := exec.CommandContext(ctx, "go", "install", temporalPackage)
	// A folder outside any module, and no flags or targets meant for the user's own builds.
	command.Dir = folder
	command.Env = append(cleanEnv("GOFLAGS=", "GOWORK=", "GOOS=", "GOARCH=", "GOBIN="), "GOBIN="+folder)
	command.Stdout, command.Stderr = &output, &output
	// The compilers that go runs must end with it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	if err := command.Start(); err != nil {
		return fmt.Errorf("build the Temporal dev server: %w", err)
	}
	if err := tellUntilDone(command.Wait, progress); err != nil {
		return fmt.Errorf("build the Temporal dev server with `go install %s`: %w; it said:\n%s", temporalPackage, errors.Join(err, ctx.Err()), output.Bytes())
	}
	if err := os.Rename(filepath.Join(folder, "temporal"), path); err != nil {
		return fmt.Errorf("put the Temporal dev server in its place: %w", err)
	}
	return nil
}

// tellUntilDone runs wait and meanwhile tells how long it has been.
func tellUntilDone(wait func() error, progress func(string)) error {
	const message = "building the Temporal dev server, first time only, takes about three minutes…"
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
	ctx, cancel := context.WithTimeout(ctx, temporalBuilds)
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
