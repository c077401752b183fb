// Package schematest gives tests a real Postgres: a fresh, migrated database for each test, and a
// proxy that loses and delays what goes over the wire.
//
// A test binary that uses it starts from
//
//	func TestMain(m *testing.M) { os.Exit(schematest.Run(m)) }
//
// The tests of package schema itself must be in package schema_test, since this package imports
// schema to run the migrations.
package schematest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/worker/localstack"
)

// ServerEnv names the environment variable that holds a superuser's URL of the Postgres server to
// use. Without it each test binary starts a server of its own.
const ServerEnv = "RECLAIM_TEST_POSTGRES"

// The login roles of the tests. Roles belong to the whole server, so test binaries that share a
// server share them.
const (
	ownerRole = "reclaim_test_owner"
	appRole   = "reclaim_test_app"
)

const (
	// clusterLock is held, in the superuser's database, by the one test binary that makes roles or
	// runs migrations: Postgres refuses two concurrent changes of a role.
	clusterLock int64 = 0x7265636c61696d74

	startLimit = 5 * time.Minute // other test binaries may be ahead
	stepLimit  = time.Minute
)

// Database is a migrated database of one test.
type Database struct {
	// Name of the database on its server.
	Name string
	// OwnerURL logs in as the role that owns the database and ran the migrations. It may create
	// roles and is not a superuser.
	OwnerURL string
	// AppURL logs in as a role whose only right is its membership of reclaim_app.
	AppURL string
	// SuperuserURL logs in as a superuser.
	SuperuserURL string
	// Address is the host and port of the server, for NewLossyProxy.
	Address string
}

// Run runs the tests of a test binary and then stops what New has started. It gives the exit code.
func Run(m *testing.M) int {
	shared = &cluster{}
	code := m.Run()
	if err := shared.close(); err != nil {
		fmt.Fprintln(os.Stderr, "schematest:", err)
		return max(code, 1)
	}
	return code
}

// New gives a fresh database, a copy of one that was migrated once for the whole test binary, and
// drops it when the test ends. Rights on the database itself and settings of it are not copied.
func New(t testing.TB) *Database {
	t.Helper()
	if shared == nil {
		t.Fatal("schematest.New needs TestMain: func TestMain(m *testing.M) { os.Exit(schematest.Run(m)) }")
	}
	if err := shared.ready(); err != nil {
		t.Fatalf("prepare the tests' Postgres: %v", err)
	}
	name := fmt.Sprintf("%s_%d", shared.prefix, shared.databases.Add(1))
	create := fmt.Sprintf("CREATE DATABASE %s OWNER %s TEMPLATE %s", name, ownerRole, shared.template)
	if err := shared.execute(create); err != nil {
		t.Fatalf("make the test's database: %v", err)
	}
	t.Cleanup(func() {
		if err := shared.execute("DROP DATABASE IF EXISTS " + name + " WITH (FORCE)"); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return shared.database(name)
}

// NewOn makes and migrates a database on a server that the test itself started, and may kill. It
// stays for as long as the server's data.
func NewOn(t testing.TB, superuserURL string) *Database {
	t.Helper()
	own := &cluster{superuserURL: superuserURL}
	if err := own.prepare(); err != nil {
		t.Fatalf("prepare the test's Postgres: %v", err)
	}
	return own.database(own.template)
}

// shared is the server of this test binary, once Run was called.
var shared *cluster

// cluster is a Postgres server prepared for tests.
type cluster struct {
	once     sync.Once
	onceErr  error
	postgres *localstack.Postgres // nil when the server is not ours

	superuserURL string
	server       *url.URL // the same, in parts
	password     string   // of both login roles
	prefix       string   // of the names of databases made by this test binary
	template     string

	databases atomic.Int64
}

// ready starts and prepares the server at the first call.
func (c *cluster) ready() error {
	c.once.Do(func() { c.onceErr = c.start() })
	return c.onceErr
}

func (c *cluster) start() error {
	c.superuserURL = os.Getenv(ServerEnv)
	if c.superuserURL == "" {
		ctx, cancel := context.WithTimeout(context.Background(), startLimit)
		defer cancel()
		postgres, err := localstack.StartPostgres(ctx, localstack.PostgresOptions{})
		if err != nil {
			return err
		}
		c.postgres, c.superuserURL = postgres, postgres.SuperuserURL("postgres")
	}
	return c.prepare()
}

// prepare makes the login roles and the migrated database that the tests' databases are copies of.
func (c *cluster) prepare() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	// Every test binary that shares the server finds the same password, and nobody else.
	sum := sha256.Sum256([]byte("schematest " + c.superuserURL))
	c.password = hex.EncodeToString(sum[:16])
	c.prefix = "reclaim_test_" + strings.ToLower(rand.Text()[:10])

	c.server, err = url.Parse(c.superuserURL)
	if err != nil || c.server.Host == "" {
		return fmt.Errorf("%s must be a URL like postgres://postgres:password@127.0.0.1:5432/postgres", ServerEnv)
	}
	connection, err := pgx.Connect(ctx, c.superuserURL)
	if err != nil {
		return fmt.Errorf("connect to the tests' Postgres as superuser (%s holds its URL, if set): %w", ServerEnv, err)
	}
	// The end of the session releases the lock.
	defer func() { err = errors.Join(err, connection.Close(context.WithoutCancel(ctx))) }()
	if _, err := connection.Exec(ctx, "SELECT pg_advisory_lock($1)", clusterLock); err != nil {
		return fmt.Errorf("wait for other test binaries: %w", err)
	}
	template := c.prefix + "_template"
	for _, login := range []localstack.Login{
		{Name: ownerRole, Password: c.password, CreateRole: true}, {Name: appRole, Password: c.password},
	} {
		if err := localstack.MakeLogin(ctx, connection, login); err != nil {
			return err
		}
	}
	if _, err := connection.Exec(ctx, fmt.Sprintf("CREATE DATABASE %s OWNER %s", template, ownerRole)); err != nil {
		return fmt.Errorf("make the database that the tests' are copies of: %w", err)
	}
	c.template = template
	if _, err := schema.Migrate(ctx, c.database(template).OwnerURL); err != nil {
		return err
	}
	if _, err := connection.Exec(ctx, fmt.Sprintf("GRANT %s TO %s", schema.AppRole, appRole)); err != nil {
		return fmt.Errorf("make the app's login a member of %s: %w", schema.AppRole, err)
	}
	return nil
}

// database describes a database of the server.
func (c *cluster) database(name string) *Database {
	as := func(account *url.Userinfo) string {
		other := *c.server
		other.User, other.Path = account, "/"+name
		return other.String()
	}
	return &Database{
		Name:         name,
		OwnerURL:     as(url.UserPassword(ownerRole, c.password)),
		AppURL:       as(url.UserPassword(appRole, c.password)),
		SuperuserURL: as(c.server.User),
		Address:      c.server.Host,
	}
}

// execute runs a statement that must stand alone, as superuser.
func (c *cluster) execute(statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
	defer cancel()
	connection, err := pgx.Connect(ctx, c.superuserURL)
	if err != nil {
		return fmt.Errorf("connect to the tests' Postgres: %w", err)
	}
	_, err = connection.Exec(ctx, statement)
	return errors.Join(err, connection.Close(ctx))
}

// close removes the template and stops the server if it is ours.
func (c *cluster) close() error {
	if c.postgres != nil {
		return c.postgres.Close()
	}
	if c.template == "" {
		return nil
	}
	return c.execute("DROP DATABASE IF EXISTS " + c.template + " WITH (FORCE)")
}
