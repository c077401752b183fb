#!/bin/sh
# Brings both databases of the Temporal server to the schema of this temporal-sql-tool's release. Safe to run again.
#
# The tool connects by its own variables: SQL_PLUGIN, SQL_HOST, SQL_PORT, SQL_USER and SQL_PASSWORD. TEMPORAL_SQL_TOOL is
# its path, where it is not on PATH.
set -eu

: "${SQL_PLUGIN:?is missing: postgres12}" "${SQL_HOST:?is missing}" "${SQL_PORT:?is missing}"
: "${SQL_USER:?is missing}" "${SQL_PASSWORD:?is missing}"

bring() { # DATABASE SCHEMA
	"${TEMPORAL_SQL_TOOL:-temporal-sql-tool}" --database "$1" setup-schema --version 0.0
	"${TEMPORAL_SQL_TOOL:-temporal-sql-tool}" --database "$1" update-schema --schema-name "postgresql/v12/$2"
}
bring temporal temporal
bring temporal_visibility visibility
echo "the databases temporal and temporal_visibility have the newest schema"
