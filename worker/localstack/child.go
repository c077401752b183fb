package localstack

import (
	"fmt"
	"syscall"
	"time"
)

// ChildOptions says how to run a program beside the servers.
type ChildOptions struct {
	// Path and Args are the program, and Env its whole environment.
	Path string
	Args []string
	Env  []string
	// Log is the file that standard output and standard error are appended to.
	Log string
}

// Child is a program that runs beside the servers and, like them, ends with the program that started it.
type Child struct {
	name    string
	process *process
}

// StartChild starts a program, called by that name in errors, and returns at once. The program is in a process group of its own, so that a Ctrl-C in
// the terminal reaches it only through Stop.
func StartChild(name string, options ChildOptions) (*Child, error) {
	started, err := startProcess(program{
		path: options.Path, args: options.Args, env: options.Env, logPath: options.Log, orphan: syscall.SIGTERM,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &Child{name: name, process: started}, nil
}

// PID gives the program's process id.
func (c *Child) PID() int { return c.process.pid }

// Exited gives a channel that is closed when the program has ended, for whatever reason.
func (c *Child) Exited() <-chan struct{} { return c.process.exited }

// Failure describes, with the end of its log, a program that ended though nobody stopped it, or is of no use.
func (c *Child) Failure(what string) error { return c.process.failure(c.name + " " + what) }

// Stop asks the program to end with SIGTERM, and ends it by force when it has not done so within the limit. It does
// nothing when the program has ended.
func (c *Child) Stop(limit time.Duration) {
	c.process.signal(syscall.SIGTERM)
	if !c.process.endsWithin(limit) {
		c.process.kill()
	}
}

// Kill ends the program with SIGKILL, as a crash does, and waits until it is gone.
func (c *Child) Kill() { c.process.kill() }

// LargeHeap lets a Go program collect a quarter as often: those of a local stack keep little and throw much away. Put it before
// an environment, so that the user's own GOGC beats it.
const LargeHeap = "GOGC=400"

// CleanEnv gives this program's environment without the variables that begin with one of the prefixes.
func CleanEnv(prefixes ...string) []string { return cleanEnv(prefixes...) }
