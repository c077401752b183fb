package localstack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	superuser = "postgres"

	postgresStarts  = 2 * time.Minute  // recovery after a crash may take a while
	postgresLeaves  = 15 * time.Second // what a server of a killed program may need to stop
	postgresStops   = 15 * time.Second // fast shutdown writes everything to disk
	postgresAborts  = 5 * time.Second  // immediate shutdown
	postgresDies    = 10 * time.Second // after SIGKILL
	postgresPolls   = 50 * time.Millisecond
	portAttempts    = 5
	connectAttempt  = 5 * time.Second
	defaultSessions = 200
)

// PostgresOptions says how to run a Postgres server.
type PostgresOptions struct {
	// Dir is the folder whose subfolder "postgres" holds the data; data found there is used again.
	// Empty means a temporary folder, deleted by Close (or by a later
	// start, when this program dies first).
	//
	// Postgres refuses to run as root. Started by root it runs as user postgres (or nobody), and
	// when that user may not enter Dir the data is kept under /var/lib/reclaim; Progress says so.
	Dir string
	// Port to listen on; 0 means a free one.
	Port int
	// Durable makes data survive the death of the machine. Without it writes are not flushed to
	// disk (fsync=off), which is faster; every commit still survives Kill.
	Durable bool
	// MaxConnections is the number of sessions the server accepts; 0 means 200.
	MaxConnections int
	// Progress, when set, is told about what takes long or was decided on the user's behalf.
	Progress func(string)
}

// Postgres is a server running on this machine. Its methods may be used by many goroutines.
type Postgres struct {
	place    *place
	as       *serverUser
	bin      string
	port     int
	password string
	options  PostgresOptions

	mu     sync.Mutex // held while the server starts or stops
	server *process
}

// StartPostgres starts a Postgres server, making its data first when there is none, and waits until
// it answers. ctx bounds the start only. It uses the programs of an installed Postgres 15 or newer,
// and downloads them when there is none.
//
// Errors tell that the folder is in use by another copy, that the port is taken, or quote the last
// lines of the server's log.
func StartPostgres(ctx context.Context, options PostgresOptions) (*Postgres, error) {
	options.Progress = quiet(options.Progress)
	if err := wantFree(options.Port); err != nil {
		return nil, err
	}
	if options.MaxConnections == 0 {
		options.MaxConnections = defaultSessions
	}
	as, err := postgresUser()
	if err != nil {
		return nil, err
	}
	home, err := openPlace(options.Dir, "postgres", as, options.Progress)
	if err != nil {
		return nil, err
	}
	p := &Postgres{place: home, as: as, options: options}
	if err := p.prepareAndStart(ctx); err != nil {
		return nil, errors.Join(err, home.close())
	}
	return p, nil
}

// prepareAndStart makes the data when there is none, chooses the port and starts the server.
func (p *Postgres) prepareAndStart(ctx context.Context) error {
	major, err := p.dataMajor()
	if err != nil {
		return err
	}
	p.bin, err = findPostgres(ctx, major, p.as, p.options.Progress)
	if err != nil {
		return err
	}
	if major == 0 {
		if err := p.initData(ctx); err != nil {
			return err
		}
	}
	password, err := os.ReadFile(p.passwordPath())
	if err != nil {
		return fmt.Errorf("read the password of the Postgres data in %s: %w", p.dataPath(), err)
	}
	p.password = string(password)
	if err := os.WriteFile(p.logPath(), nil, 0o600); err != nil {
		return fmt.Errorf("empty the Postgres log: %w", err)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	for attempt := 1; ; attempt++ {
		if p.port = p.options.Port; p.port == 0 {
			if p.port, err = FreePort(); err != nil {
				return err
			}
		}
		err := p.start(ctx)
		if !errors.Is(err, errPortTaken) || p.options.Port != 0 || attempt == portAttempts {
			return err
		}
	}
}

// dataMajor gives the major version of Postgres that made the data, or 0 when there is none.
func (p *Postgres) dataMajor() (int, error) {
	text, err := os.ReadFile(filepath.Join(p.dataPath(), "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the version of the Postgres data: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read the version of the Postgres data in %s: %w", p.dataPath(), err)
	}
	return major, nil
}

// initData makes the cluster's files and its password. The data gets its final name when it is
// complete, so an interrupted start leaves nothing half made in its place.
func (p *Postgres) initData(ctx context.Context) error {
	unfinished := p.dataPath() + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil {
		return fmt.Errorf("remove unfinished Postgres data: %w", err)
	}
	if err := os.WriteFile(p.passwordPath(), []byte(rand.Text()), 0o600); err != nil {
		return fmt.Errorf("write the Postgres password: %w", err)
	}
	if p.as != nil {
		// initdb reads the file as the server's user.
		if err := os.Chown(p.passwordPath(), p.as.uid, p.as.gid); err != nil {
			return fmt.Errorf("give the Postgres password to user %q: %w", p.as.name, err)
		}
	}
	command := exec.CommandContext(ctx, filepath.Join(p.bin, "initdb"),
		"--pgdata", unfinished, "--username", superuser, "--pwfile", p.passwordPath(),
		"--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C",
		"--no-sync", "--no-instructions")
	command.Dir, command.Env = p.place.path, p.env()
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.as != nil {
		command.SysProcAttr.Credential = p.as.credential()
	}
	// initdb runs postgres: both must end when the start is given up.
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("make the Postgres data in %s: %w; initdb said:\n%s", p.dataPath(), err, output)
	}
	if err := os.Rename(unfinished, p.dataPath()); err != nil {
		return fmt.Errorf("put the new Postgres data in its place: %w", err)
	}
	return nil
}

// start runs the server on its port and waits until it answers. The caller holds mu.
func (p *Postgres) start(ctx context.Context) error {
	leaves := time.Now().Add(postgresLeaves)
	for {
		server, err := startProcess(program{
			path: filepath.Join(p.bin, "postgres"), args: p.arguments(), dir: p.place.path, env: p.env(),
			logPath: p.logPath(), as: p.as, orphan: syscall.SIGINT,
		})
		if err != nil {
			return err
		}
		p.server = server
		err = p.waitReady(ctx, server)
		if err == nil {
			return nil
		}
		p.kill()
		text, logErr := server.log()
		if logErr != nil {
			return errors.Join(err, logErr)
		}
		if strings.Contains(text, "could not bind") || strings.Contains(text, "Address already in use") {
			return fmt.Errorf("%w: %w", portTaken(p.port), err)
		}
		// The server of a program that was killed a moment ago may still be stopping.
		stopping := strings.Contains(text, "postmaster.pid") || strings.Contains(text, "pre-existing shared memory block")
		if !stopping || time.Now().After(leaves) || ctx.Err() != nil {
			return err
		}
		if err := pause(ctx, 4*postgresPolls); err != nil {
			return err
		}
	}
}

// arguments of the server. Everything that matters is given here rather than in the data's
// postgresql.conf, so that data made by an older version of this program behaves the same.
func (p *Postgres) arguments() []string {
	settings := []string{
		"listen_addresses=" + loopback,
		"port=" + strconv.Itoa(p.port),
		"unix_socket_directories=",
		"max_connections=" + strconv.Itoa(p.options.MaxConnections),
		"ssl=off",
		"password_encryption=scram-sha-256",
		"logging_collector=off",
		"log_destination=stderr",
		"lc_messages=C", // the log is searched for English words
		"log_timezone=UTC",
		"timezone=UTC",
	}
	if !p.options.Durable {
		// The kernel keeps what a killed server has written, so acknowledged commits survive Kill.
		// With synchronous_commit=off, which would gain little more, they would not.
		settings = append(settings, "fsync=off")
	}
	arguments := []string{"-D", p.dataPath()}
	for _, setting := range settings {
		arguments = append(arguments, "-c", setting)
	}
	return arguments
}

// env is the environment of the server's programs.
func (p *Postgres) env() []string {
	return append(cleanEnv("PG", "LC_", "LANG"), "LC_ALL=C")
}

// waitReady waits until the server answers a query.
func (p *Postgres) waitReady(ctx context.Context, server *process) error {
	ctx, cancel := context.WithTimeout(ctx, postgresStarts)
	defer cancel()
	for {
		err := p.ping(ctx)
		if err == nil && server.running() {
			return nil
		}
		if !server.running() {
			return server.failure("Postgres did not start")
		}
		if pauseErr := pause(ctx, postgresPolls); pauseErr != nil {
			return errors.Join(server.failure("Postgres did not answer in time"), pauseErr, err)
		}
	}
}

// ping connects and asks the server which data it serves: the port may be somebody else's.
func (p *Postgres) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectAttempt)
	defer cancel()
	connection, err := pgx.Connect(ctx, p.SuperuserURL("postgres"))
	if err != nil {
		return err
	}
	var data string
	err = connection.QueryRow(ctx, "SELECT current_setting('data_directory')").Scan(&data)
	if err == nil && data != p.dataPath() {
		err = fmt.Errorf("the Postgres server on %s serves %s, not %s", hostPort(p.port), data, p.dataPath())
	}
	return errors.Join(err, connection.Close(ctx))
}

// URL gives a connection URL for a role and a database; the password may be empty.
func (p *Postgres) URL(user, password, database string) string {
	account := url.User(user)
	if password != "" {
		account = url.UserPassword(user, password)
	}
	address := url.URL{Scheme: "postgres", User: account, Host: p.Address(), Path: "/" + database, RawQuery: "sslmode=disable"}
	return address.String()
}

// SuperuserURL gives a connection URL for role postgres, which may do anything.
func (p *Postgres) SuperuserURL(database string) string {
	return p.URL(superuser, p.password, database)
}

// Address gives host and port, which stay the same over restarts.
func (p *Postgres) Address() string { return hostPort(p.port) }

// Dir gives the folder that holds data, password and log.
func (p *Postgres) Dir() string { return p.place.path }

// Exited gives a channel that is closed when the server that runs now has ended, for whatever
// reason. Restart starts another server with another channel.
func (p *Postgres) Exited() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.server.exited
}

// Wait blocks until the server that runs now has ended, and tells how: nil after Stop.
func (p *Postgres) Wait() error {
	p.mu.Lock()
	server := p.server
	p.mu.Unlock()
	<-server.exited
	return server.ended
}

// Stop ends the server in an orderly way, breaking its sessions, and by force when it does not
// comply. The data stays. It does nothing when the server has ended.
func (p *Postgres) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop()
}

func (p *Postgres) stop() {
	p.server.signal(syscall.SIGINT)
	if p.server.endsWithin(postgresStops) {
		return
	}
	p.server.signal(syscall.SIGQUIT)
	if !p.server.endsWithin(postgresAborts) {
		p.kill()
	}
}

// Kill ends the server as a crash does: no process of it runs another instruction. Restart
// recovers the data, with every acknowledged commit.
func (p *Postgres) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kill()
}

func (p *Postgres) kill() {
	// Each session is a process with a session of its own, so no group holds them all. A stopped
	// server starts no further one while they are listed.
	p.server.signal(syscall.SIGSTOP)
	var children []int
	if p.server.running() {
		// Without the list the sessions still end by themselves, when they notice.
		children, _ = childrenOf(p.server.pid)
	}
	p.server.kill()
	if err := killFamily(children, postgresDies); err != nil {
		p.options.Progress(err.Error())
	}
}

// Restart stops the server if it runs and starts it again on the same port and data. ctx bounds the
// start. When it fails the server does not run, and Restart may be tried again.
func (p *Postgres) Restart(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop()
	return p.start(ctx)
}

// Close stops the server and gives its folder up, so that another copy may use the data. Data in a
// temporary folder is deleted. The Postgres must not be used after it.
func (p *Postgres) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop()
	return p.place.close()
}

func (p *Postgres) dataPath() string     { return filepath.Join(p.place.path, "data") }
func (p *Postgres) passwordPath() string { return filepath.Join(p.place.path, "password") }
func (p *Postgres) logPath() string      { return filepath.Join(p.place.path, "postgres.log") }

// pause waits before the next look at a condition, or gives the reason why ctx ended.
func pause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
