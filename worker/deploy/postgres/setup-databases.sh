#!/bin/sh
# Makes the logins and databases of Reclaim and of Temporal, apart from each other. Safe to run again: it gives the logins
# the passwords of now, and what exists stays.
#
# It connects as a superuser by psql's own variables: PGHOST, PGPORT, PGUSER and PGPASSWORD.
set -eu

: "${RECLAIM_OWNER_PASSWORD:?is missing: the password of reclaim_owner, who migrates}"
: "${RECLAIM_LOGIN_PASSWORD:?is missing: the password of reclaim_login, as whom worker and gateway connect}"
: "${TEMPORAL_DB_PASSWORD:?is missing: the password of temporal, as whom the Temporal server connects}"
# psql reads them from the environment, since everybody may see its arguments.
export RECLAIM_OWNER_PASSWORD RECLAIM_LOGIN_PASSWORD TEMPORAL_DB_PASSWORD

psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --dbname postgres <<'SQL'
\getenv owner_password RECLAIM_OWNER_PASSWORD
\getenv login_password RECLAIM_LOGIN_PASSWORD
\getenv temporal_password TEMPORAL_DB_PASSWORD

-- The migrations would make the first three: here they are, so that the owner need not be allowed to make roles.
SELECT format('CREATE ROLE %I', wanted)
FROM unnest(ARRAY['reclaim_app', 'reclaim_support', 'reclaim_enqueue', 'reclaim_owner', 'reclaim_login', 'temporal']) AS wanted
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted)
\gexec
ALTER ROLE reclaim_owner LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD :'owner_password';
ALTER ROLE reclaim_login LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD :'login_password';
ALTER ROLE temporal LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD :'temporal_password';
SET client_min_messages = warning; -- a grant that was given before is no news
GRANT reclaim_app TO reclaim_owner, reclaim_login;

SELECT format('CREATE DATABASE %I OWNER %I', wanted, owner)
FROM (VALUES ('reclaim', 'reclaim_owner'), ('temporal', 'temporal'), ('temporal_visibility', 'temporal')) AS databases (wanted, owner)
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = wanted)
\gexec
REVOKE CONNECT ON DATABASE reclaim, temporal, temporal_visibility FROM PUBLIC;
GRANT CONNECT ON DATABASE reclaim TO reclaim_app, reclaim_support, reclaim_enqueue;
SQL
echo "the logins and the databases reclaim, temporal and temporal_visibility are ready"
