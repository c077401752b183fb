#!/bin/sh
# Installs, as root and from Debian's packages, what the local stack and the race detector need and the machine lacks:
# Postgres' binaries and a C compiler. Elsewhere it does nothing: Postgres is downloaded by the stack itself, and the tests
# run without the race detector.
set -eu

missing=""
command -v initdb >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="postgresql"
command -v gcc >/dev/null 2>&1 || command -v clang >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
[ -n "$missing" ] || exit 0
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || exit 0

echo "installing from the package manager: $missing"
# The package would make and start a cluster of its own, which nobody here uses.
mkdir -p /etc/postgresql-common/createcluster.d
[ -e /etc/postgresql-common/createcluster.d/reclaim.conf ] ||
	echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/reclaim.conf
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >/dev/null
# shellcheck disable=SC2086 # the list is split on purpose
apt-get install -qy --no-install-recommends $missing >/dev/null
