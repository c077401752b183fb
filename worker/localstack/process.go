package localstack

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// program says how to run a server.
type program struct {
	path    string
	args    []string
	dir     string
	env     []string
	logPath string         // appended to
	as      *serverUser    // nil: the current user
	orphan  syscall.Signal // sent to the server when this process dies
}

// process is a running server in a process group of its own, so that a Ctrl-C in the terminal
// reaches it only through us.
type process struct {
	pid      int
	exited   chan struct{} // closed when the server has ended
	ended    error         // how it ended; read it after exited is closed
	logPath  string
	logStart int64 // where the lines of this run begin
}

// startProcess starts a server and returns at once; it does not wait until the server is ready.
func startProcess(p program) (*process, error) {
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log file of %s: %w", p.path, err)
	}
	defer func() { _ = log.Close() }()
	info, err := log.Stat()
	if err != nil {
		return nil, fmt.Errorf("read the log file of %s: %w", p.path, err)
	}

	command := exec.Command(p.path, p.args...)
	command.Dir, command.Env = p.dir, p.env
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.as != nil {
		command.SysProcAttr.Credential = p.as.credential()
	}
	signalWhenOrphaned(command.SysProcAttr, p.orphan)

	server := &process{exited: make(chan struct{}), logPath: p.logPath, logStart: info.Size()}
	started := make(chan error)
	go func() {
		// Linux sends the orphan signal when the thread that started the child ends, not the
		// process: the thread stays with this goroutine for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := command.Start(); err != nil {
			started <- err
			return
		}
		release, err := watchOverOrphan(command.Process.Pid, p.orphan)
		if err != nil {
			_ = command.Process.Kill()
			_ = command.Wait()
			started <- err
			return
		}
		server.pid = command.Process.Pid
		started <- nil
		err = command.Wait()
		release()
		server.ended = err
		close(server.exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", p.path, err)
	}
	return server, nil
}

// running tells whether the server has not ended yet.
func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// endsWithin waits for the server to end, at most for the given time.
func (p *process) endsWithin(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return !p.running()
	}
}

// signal sends a signal to the server itself, not to its group: servers end their children in an
// orderly way. A server that has ended is left alone, since its number may be another's by now.
func (p *process) signal(sig syscall.Signal) {
	if p.running() {
		_ = syscall.Kill(p.pid, sig)
	}
}

// kill ends the server and its group at once and waits until it is gone.
func (p *process) kill() {
	if p.running() {
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
	<-p.exited
}

// logLines gives the last lines that this run of the server has logged.
func (p *process) logLines(most int) string {
	text, err := p.log()
	if err != nil {
		return fmt.Sprintf("(its log cannot be read: %v)", err)
	}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > most {
		lines = lines[len(lines)-most:]
	}
	return strings.Join(lines, "\n")
}

// log gives what this run of the server has logged, or the last megabyte of it.
func (p *process) log() (string, error) {
	const most = 1 << 20
	file, err := os.Open(p.logPath)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	start := max(p.logStart, info.Size()-most)
	text, err := io.ReadAll(io.NewSectionReader(file, start, most))
	return string(text), err
}

// failure describes a server that did not become ready, with the end of its log.
func (p *process) failure(what string) error {
	if !p.running() && p.ended != nil {
		what = fmt.Sprintf("%s (%v)", what, p.ended)
	}
	return fmt.Errorf("%s; the log %s ends with:\n%s", what, p.logPath, p.logLines(15))
}

// watchByShell sends the signal to the process when this program dies: the shell waits for the end
// of a pipe of which only this program holds the other side. The returned function calls it off.
// Systems whose kernel does not do this need it.
func watchByShell(pid int, sig syscall.Signal) (release func(), err error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("watch over server: %w", err)
	}
	shell := exec.Command("/bin/sh", "-c", `read -r line; kill -s "$1" "$2"`, "sh", signalName(sig), strconv.Itoa(pid))
	shell.Stdin = reader
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = shell.Start()
	_ = reader.Close()
	if err != nil {
		_ = writer.Close()
		return nil, fmt.Errorf("watch over server: %w", err)
	}
	return func() {
		_ = shell.Process.Kill()
		_ = shell.Wait()
		_ = writer.Close()
	}, nil
}

// signalName gives the name by which the shell's kill knows a signal.
func signalName(sig syscall.Signal) string {
	if sig == syscall.SIGINT {
		return "INT"
	}
	return "TERM"
}

// killFamily ends processes that run in sessions of their own, and waits until they are gone.
func killFamily(pids []int, limit time.Duration) error {
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	deadline := time.Now().Add(limit)
	for _, pid := range pids {
		for alive(pid) {
			if time.Now().After(deadline) {
				return fmt.Errorf("process %d did not end %s after it was killed", pid, limit)
			}
			<-time.After(5 * time.Millisecond)
		}
	}
	return nil
}

// cleanEnv gives this program's environment without variables of the given prefixes, so that the
// settings of the user's own servers do not leak into ours.
func cleanEnv(prefixes ...string) []string {
	var kept []string
next:
	for _, entry := range os.Environ() {
		for _, prefix := range prefixes {
			if strings.HasPrefix(entry, prefix) {
				continue next
			}
		}
		kept = append(kept, entry)
	}
	return kept
}
