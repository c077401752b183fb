// Package localstack starts real Postgres and Temporal servers on this machine without Docker,
// for tests and for `worker dev`.
//
// Every server listens on 127.0.0.1 only, writes its log to a file in its folder, and is stopped
// when the program that started it ends, even when that program is killed.
package localstack

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// loopback is the only address the servers listen on.
const loopback = "127.0.0.1"

// rootHome holds what servers run by root need in a place that another user may enter.
const rootHome = "/var/lib/reclaim"

// ErrInUse tells that another copy uses the folder of the data.
var ErrInUse = errors.New("in use by another copy")

// errPortTaken tells that another program took the port between its choice and its use.
var errPortTaken = errors.New("the port is taken")

// portsGiven remembers the ports handed out by this process: two servers starting at once must not
// be given the same one.
var portsGiven sync.Map

// FreePort picks a TCP port of 127.0.0.1 that nothing listens on.
//
// The range lies below the one from which the system takes the ports of outgoing connections
// (32768 and up on Linux, 49152 and up on macOS). A server that is down for a moment would lose a
// port of that range to a connection, and a client that retries could even connect to itself.
func FreePort() (int, error) {
	const lowest, count, attempts = 15000, 17000, 200
	for range attempts {
		port := lowest + rand.IntN(count)
		if portIsFree(port) {
			if _, given := portsGiven.LoadOrStore(port, true); !given {
				return port, nil
			}
		}
	}
	return 0, fmt.Errorf("find a free port of %s between %d and %d: tried %d, all taken", loopback, lowest, lowest+count-1, attempts)
}

// portIsFree tells whether a server could listen on the port now.
func portIsFree(port int) bool {
	listener, err := net.Listen("tcp", hostPort(port))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

// wantFree tells which of the ports chosen by the caller cannot be had; 0 stands for no choice.
func wantFree(ports ...int) error {
	for _, port := range ports {
		if port != 0 && !portIsFree(port) {
			return portTaken(port)
		}
	}
	return nil
}

// portTaken is the error that names a taken port.
func portTaken(port int) error {
	return fmt.Errorf("%w: another program listens on %s: stop it, or choose another port", errPortTaken, hostPort(port))
}

// hostPort gives the address of a local port.
func hostPort(port int) string {
	return net.JoinHostPort(loopback, strconv.Itoa(port))
}

// place is the folder of one server. Its lock is held while this process uses it.
type place struct {
	path      string // where the server's files are
	temporary string // the folder to remove with it, or empty when the caller chose the folder
	lock      *os.File
}

// openPlace prepares the folder `name` inside dir, or inside a new temporary folder when dir is
// empty, for a server run by the given user (nil: by ourselves).
func openPlace(dir, name string, as *serverUser, progress func(string)) (*place, error) {
	removeAbandoned()
	p := &place{}
	if dir == "" {
		temporary, err := makeTemporary(as)
		if err != nil {
			return nil, err
		}
		dir, p.temporary = temporary, temporary
	} else {
		chosen, err := reachableDir(dir, as, progress)
		if err != nil {
			return nil, err
		}
		dir = chosen
	}
	p.path = filepath.Join(dir, name)
	if err := p.prepare(as); err != nil {
		if p.temporary != "" {
			err = errors.Join(err, os.RemoveAll(p.temporary))
		}
		return nil, err
	}
	return p, nil
}

// prepare makes the folder, gives it to the server's user and locks it.
func (p *place) prepare(as *serverUser) error {
	err := os.Mkdir(p.path, 0o700)
	if err == nil && as != nil {
		err = os.Chown(p.path, as.uid, as.gid)
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make the server's folder: %w", err)
	}
	lock, err := tryLock(filepath.Join(p.path, "lock"))
	if err != nil {
		return err
	}
	if lock == nil {
		return fmt.Errorf("%s is %w: stop that one, or choose another folder", p.path, ErrInUse)
	}
	p.lock = lock
	return nil
}

// close gives the folder up, and deletes it when it is a temporary one.
func (p *place) close() error {
	var err error
	if p.temporary != "" {
		err = os.RemoveAll(p.temporary)
	}
	return errors.Join(err, p.lock.Close())
}

// reachableDir makes dir and gives its absolute path, or another folder when the server's user may
// not enter dir.
func reachableDir(dir string, as *serverUser, progress func(string)) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find folder %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make folder %s: %w", dir, err)
	}
	if as == nil || as.mayEnter(dir) {
		return dir, nil
	}
	other := replacementDir(dir)
	if err := os.MkdirAll(other, 0o755); err != nil {
		return "", fmt.Errorf("user %q may not enter %s, and its replacement could not be made (choose a folder that every user may enter): %w", as.name, dir, err)
	}
	if !as.mayEnter(other) {
		return "", fmt.Errorf("user %q may enter neither %s nor %s: choose a folder that every user may enter", as.name, dir, other)
	}
	progress(fmt.Sprintf("Postgres does not run as root, and user %q may not enter %s: its data is in %s", as.name, dir, other))
	return other, nil
}

// replacementDir gives the folder that stands for one which the server's user may not enter.
func replacementDir(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join(rootHome, filepath.Base(dir)+"-"+hex.EncodeToString(sum[:4]))
}

const temporaryPrefix = "reclaim-local-"

// temporaryParents are where temporary folders may be, best first.
func temporaryParents() []string { return []string{os.TempDir(), "/tmp", "/var/tmp"} }

// makeTemporary makes a temporary folder that the server's user may enter.
func makeTemporary(as *serverUser) (string, error) {
	for _, parent := range temporaryParents() {
		if as != nil && !as.mayEnter(parent) {
			continue
		}
		dir, err := os.MkdirTemp(parent, temporaryPrefix+"*")
		if err == nil && as != nil {
			err = os.Chown(dir, as.uid, as.gid)
		}
		if err != nil {
			return "", fmt.Errorf("make a temporary folder: %w", err)
		}
		return dir, nil
	}
	return "", fmt.Errorf("make a temporary folder: user %q may enter none of %s, /tmp and /var/tmp: set TMPDIR to a folder that every user may enter", as.name, os.TempDir())
}

// removeAbandoned deletes temporary folders of ours whose program was killed before it could remove them.
func removeAbandoned() {
	as, err := postgresUser()
	if err != nil {
		return // the start of Postgres says so
	}
	for _, parent := range temporaryParents() {
		dirs, _ := filepath.Glob(filepath.Join(parent, temporaryPrefix+"*"))
		for _, dir := range dirs {
			if isOurs(dir, as) && !inUse(dir) {
				// What is left of it, the next start tries again.
				_ = os.RemoveAll(dir)
			}
		}
	}
}

// isOurs tells whether path is a folder, and no symbolic link to one, of the current user or of the server's. Anybody may
// make one of that name, and root could delete it.
func isOurs(path string, as *serverUser) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return false
	}
	status, ok := info.Sys().(*syscall.Stat_t)
	return ok && (int(status.Uid) == os.Geteuid() || as != nil && int(status.Uid) == as.uid)
}

// inUse tells whether a program may still use a temporary folder: one that holds the lock of a place inside it, one that
// has just made it and is about to lock it, or the Postgres server of a program that was killed a moment ago.
func inUse(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil || isYoung(dir) {
		return true
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if !entry.IsDir() {
			continue
		}
		if isYoung(path) || isServed(path) {
			return true
		}
		if _, err := os.Lstat(filepath.Join(path, "lock")); errors.Is(err, os.ErrNotExist) {
			continue
		}
		lock, err := tryLock(filepath.Join(path, "lock"))
		if err != nil || lock == nil {
			return true
		}
		_ = lock.Close()
	}
	return false
}

// isYoung tells whether an entry of the folder was made or removed so lately that its program may be at it.
func isYoung(dir string) bool {
	const young = 10 * time.Second
	info, err := os.Lstat(dir)
	return err != nil || time.Since(info.ModTime()) < young
}

// isServed tells whether the Postgres server whose number is in the place's data still runs.
func isServed(path string) bool {
	text, err := os.ReadFile(filepath.Join(path, "data", "postmaster.pid"))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	return err == nil && alive(pid)
}

// tryLock takes the exclusive lock of a file, making the file if needed. It gives nil when another
// process holds the lock; closing the file, or the end of this process, gives the lock up.
func tryLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return file, nil
	}
	_ = file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// quiet replaces a missing progress function by one that says nothing.
func quiet(progress func(string)) func(string) {
	if progress == nil {
		return func(string) {}
	}
	return progress
}
