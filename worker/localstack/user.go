package localstack

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// serverUser is the account that runs a server which refuses to run as root.
type serverUser struct {
	name     string
	uid, gid int
}

// postgresUser gives the account Postgres runs as, or nil for the current one: Postgres refuses to
// run as root.
func postgresUser() (*serverUser, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	var unknown error
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			unknown = errors.Join(unknown, err)
			continue
		}
		uid, err := strconv.Atoi(account.Uid)
		if err != nil {
			return nil, fmt.Errorf("read the number of user %q: %w", name, err)
		}
		gid, err := strconv.Atoi(account.Gid)
		if err != nil {
			return nil, fmt.Errorf("read the group of user %q: %w", name, err)
		}
		return &serverUser{name: name, uid: uid, gid: gid}, nil
	}
	return nil, fmt.Errorf("postgres refuses to run as root and neither user \"postgres\" nor \"nobody\" exists: add one, or run this as an ordinary user: %w", unknown)
}

// credential is the form that a child process takes.
func (u *serverUser) credential() *syscall.Credential {
	return &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.gid)}
}

// mayEnter tells whether the user may pass through every folder down to and including path.
func (u *serverUser) mayEnter(path string) bool {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	for {
		if !u.mayPass(path) {
			return false
		}
		parent := filepath.Dir(path)
		if parent == path {
			return true
		}
		path = parent
	}
}

// mayPass tells whether the user has the execute permission on one folder or file.
func (u *serverUser) mayPass(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	status, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	mode := info.Mode().Perm()
	switch {
	case int(status.Uid) == u.uid:
		return mode&0o100 != 0
	case int(status.Gid) == u.gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}
