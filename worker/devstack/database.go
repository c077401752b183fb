package devstack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/worker/localstack"
)

const (
	databaseName = "reclaim"
	ownerRole    = "reclaim_owner"
	appLogin     = "reclaim_login"
)

// prepareDatabase makes the database with an owner, who migrates it, and a login whose only right is its membership
// of the application's role: the same division as in production.
func (s *Stack) prepareDatabase(ctx context.Context) (_ string, err error) {
	if s.options.Server == PostgresServer {
		return s.setUpDatabases(ctx)
	}
	superuser, err := pgx.Connect(ctx, s.postgres.SuperuserURL("postgres"))
	if err != nil {
		return "", fmt.Errorf("connect to the new Postgres: %w", err)
	}
	defer func() { err = errors.Join(err, superuser.Close(context.WithoutCancel(ctx))) }()
	for _, login := range []struct {
		localstack.Login
		url *string
	}{
		{localstack.Login{Name: ownerRole, CreateRole: true}, &s.ownerURL},
		{localstack.Login{Name: appLogin}, &s.appURL},
	} {
		login.Password = derivedPassword(login.Name, superuser.Config().Password)
		if err := localstack.MakeLogin(ctx, superuser, login.Login); err != nil {
			return "", err
		}
		*login.url = s.postgres.URL(login.Name, login.Password, databaseName)
	}
	var exists bool
	err = superuser.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", databaseName).Scan(&exists)
	if err == nil && !exists {
		_, err = superuser.Exec(ctx, fmt.Sprintf("CREATE DATABASE %s OWNER %s", databaseName, ownerRole))
	}
	if err != nil {
		return "", fmt.Errorf("make the database %s: %w", databaseName, err)
	}
	applied, err := schema.Migrate(ctx, s.ownerURL)
	if err != nil {
		return "", err
	}
	if _, err := superuser.Exec(ctx, fmt.Sprintf("GRANT %s TO %s", schema.AppRole, appLogin)); err != nil {
		return "", fmt.Errorf("make %s a member of %s: %w", appLogin, schema.AppRole, err)
	}
	return fmt.Sprintf("%s, %d migrations run", databaseName, applied), nil
}

// derivedPassword gives a login's password: derived from the superuser's, it stays the same over restarts without being kept
// anywhere.
func derivedPassword(login, superusers string) string {
	sum := sha256.Sum256([]byte(login + " " + superusers))
	return hex.EncodeToString(sum[:12])
}
