package localstack

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Login is a role that may log in and is no superuser.
type Login struct {
	Name, Password string
	// CreateRole lets it make roles, which the owner of a Reclaim database must.
	CreateRole bool
}

// MakeLogin makes the role as a superuser, or gives an existing one the rights and the password.
func MakeLogin(ctx context.Context, superuser *pgx.Conn, login Login) error {
	right := "NOCREATEROLE"
	if login.CreateRole {
		right = "CREATEROLE"
	}
	name, literal := pgx.Identifier{login.Name}.Sanitize(), quoteLiteral(login.Name)
	_, err := superuser.Exec(ctx, fmt.Sprintf(`DO $$ BEGIN
		IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = %s) THEN CREATE ROLE %s; END IF;
		ALTER ROLE %[2]s LOGIN NOSUPERUSER NOCREATEDB %s PASSWORD %s;
	END $$`, literal, name, right, quoteLiteral(login.Password)))
	if err != nil {
		return fmt.Errorf("make the login role %s: %w", login.Name, err)
	}
	return nil
}

// quoteLiteral writes a text as an SQL string: CREATE ROLE takes no parameters.
func quoteLiteral(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
