package localstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// oldestPostgres is the oldest major version that the schema is tested with.
const oldestPostgres = 15

var postgresVersion = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// findPostgres gives a folder with the programs initdb and postgres: of the given major version, or
// of any supported one when it is 0. It downloads them when this machine has none.
func findPostgres(ctx context.Context, major int, as *serverUser, progress func(string)) (string, error) {
	var seen []string
	for _, dir := range postgresDirs() {
		found, err := majorOf(ctx, dir, as)
		if ctx.Err() != nil {
			return "", fmt.Errorf("look for Postgres: %w", ctx.Err())
		}
		if err != nil {
			continue
		}
		if found == major || major == 0 && found >= oldestPostgres {
			return dir, nil
		}
		seen = append(seen, fmt.Sprintf("%d in %s", found, dir))
	}
	if major != 0 && major != downloadedMajor {
		return "", fmt.Errorf("the data was made by Postgres %d, which is not installed (found: %s): install it, or choose another folder", major, strings.Join(seen, ", "))
	}
	return downloadPostgres(ctx, as, progress)
}

// postgresDirs gives the folders where Postgres may be installed, best first.
func postgresDirs() []string {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",                               // Debian, Ubuntu
		"/usr/pgsql-*/bin",                                        // Red Hat
		"/opt/homebrew/opt/postgresql*/bin",                       // Homebrew on Apple processors
		"/usr/local/opt/postgresql*/bin",                          // Homebrew on Intel processors
		"/Applications/Postgres.app/Contents/Versions/[0-9]*/bin", // Postgres.app
		"/Library/PostgreSQL/*/bin",                               // EDB on macOS
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",          // Homebrew on Linux
	} {
		found, _ := filepath.Glob(pattern)
		slices.SortFunc(found, func(a, b string) int { return trailingNumber(b) - trailingNumber(a) })
		dirs = append(dirs, found...)
	}
	return dirs
}

var numbers = regexp.MustCompile(`\d+`)

// trailingNumber gives the last number in a path, which is the version when there is one.
func trailingNumber(path string) int {
	all := numbers.FindAllString(path, -1)
	if len(all) == 0 {
		return 0
	}
	number, _ := strconv.Atoi(all[len(all)-1])
	return number
}

// majorOf gives the major version of the Postgres in a folder, and an error when the folder lacks a
// program or the server's user may not run it.
func majorOf(ctx context.Context, dir string, as *serverUser) (int, error) {
	if as != nil && !as.mayEnter(dir) {
		return 0, fmt.Errorf("user %q may not enter %s", as.name, dir)
	}
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return 0, err
	}
	output, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return 0, err
	}
	match := postgresVersion.FindSubmatch(output)
	if match == nil {
		return 0, fmt.Errorf("%s/postgres does not tell its version: %q", dir, output)
	}
	return strconv.Atoi(string(match[1]))
}

// downloadedMajor is the version of Postgres that is downloaded when none is installed.
const downloadedMajor = 17

// downloadPostgres fetches the programs of Postgres from Maven Central, once, and gives their
// folder.
//
// No test covers this branch: it needs a machine without Postgres and with an open network. The
// library that downloads can only do so as a part of starting a server of its own, so one is
// started and stopped; root cannot, and there the failure after the download is expected.
func downloadPostgres(ctx context.Context, as *serverUser, progress func(string)) (string, error) {
	home := rootHome
	if as == nil {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find the cache folder for Postgres: %w", err)
		}
		home = filepath.Join(cache, "reclaim")
	}
	finished := filepath.Join(home, fmt.Sprintf("postgres-%d", downloadedMajor))
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder for Postgres: %w", err)
	}
	lock, err := waitLock(ctx, finished+".lock", func() {
		progress("waiting for another copy to download Postgres")
	})
	if err != nil {
		return "", err
	}
	bin := filepath.Join(finished, "bin")
	if hasPrograms(bin) {
		return bin, lock.Close()
	}
	progress(fmt.Sprintf("no Postgres %d or newer on this machine: downloading Postgres %d, first time only", oldestPostgres, downloadedMajor))
	done := make(chan error, 1)
	go func() {
		// The library cannot be interrupted: when the start is given up it keeps the lock and
		// finishes, or ends with the program.
		err := fetchPostgres(home, finished, as)
		done <- errors.Join(err, lock.Close())
	}()
	select {
	case <-ctx.Done():
		return "", fmt.Errorf("download Postgres %d: %w", downloadedMajor, ctx.Err())
	case err := <-done:
		if err != nil {
			return "", fmt.Errorf("download Postgres %d (install Postgres %d or newer yourself if this machine may not): %w", downloadedMajor, oldestPostgres, err)
		}
		return bin, nil
	}
}

// fetchPostgres downloads into a folder beside the finished one and renames it when it is complete.
func fetchPostgres(home, finished string, as *serverUser) (err error) {
	unfinished, err := os.MkdirTemp(home, "postgres-unfinished-*")
	if err != nil {
		return fmt.Errorf("make a folder for the download: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(unfinished)) }()
	port, err := FreePort()
	if err != nil {
		return err
	}
	programs := filepath.Join(unfinished, "programs")
	server := embedded.NewDatabase(embedded.DefaultConfig().
		Version(embedded.V17).
		Port(uint32(port)).
		CachePath(filepath.Join(unfinished, "archive")).
		BinariesPath(programs).
		RuntimePath(filepath.Join(unfinished, "runtime")).
		DataPath(filepath.Join(unfinished, "data")).
		StartParameters(map[string]string{"listen_addresses": loopback}).
		Logger(io.Discard))
	startErr := server.Start()
	if startErr == nil {
		if err := server.Stop(); err != nil {
			return fmt.Errorf("stop the server started by the download: %w", err)
		}
	}
	if !hasPrograms(filepath.Join(programs, "bin")) || startErr != nil && as == nil {
		return startErr
	}
	if err := os.Chmod(programs, 0o755); err != nil {
		return fmt.Errorf("open the downloaded programs to the server's user: %w", err)
	}
	if err := os.Rename(programs, finished); err != nil {
		return fmt.Errorf("put the downloaded programs in their place: %w", err)
	}
	return nil
}

// hasPrograms tells whether a folder holds what a server needs.
func hasPrograms(bin string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return false
		}
	}
	return true
}
