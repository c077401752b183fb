#!/bin/sh
# Installs, as root and from Debian's packages, what the machine lacks of what the local stack and the race detector need:
# Postgres' binaries and a C compiler. Called as "install.sh tests", also what the tests of payment channels need, Node.js
# with npm and Stripe's Python library; Chromium, in which the Web UI is tried; spin, which checks the models of the guards;
# and what reads docker-compose.yml and the alert rules. Elsewhere it installs nothing: Postgres is downloaded by the stack
# itself, the tests run without the race detector, and those that lack a tool are skipped and say so.
set -eu

missing=""
command -v initdb >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="postgresql"
command -v gcc >/dev/null 2>&1 || command -v clang >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
optional=""
if [ "${1:-}" = tests ]; then
	command -v node >/dev/null 2>&1 || optional="nodejs"
	command -v npm >/dev/null 2>&1 || optional="$optional npm"
	command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 ||
		optional="$optional chromium"
	# Debian's Python, whichever else comes first on PATH.
	/usr/bin/python3 -c 'import stripe' >/dev/null 2>&1 || optional="$optional python3-stripe"
	command -v docker-compose >/dev/null 2>&1 || docker compose version >/dev/null 2>&1 || optional="$optional docker-compose"
	command -v spin >/dev/null 2>&1 || optional="$optional spin"
fi
[ -n "$missing$optional" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
	[ -z "$optional" ] || echo "not installed, as this is not root on Debian or Ubuntu: $optional; the tests that need it are skipped"
	exit 0
fi

# The package would make and start a cluster of its own, which nobody here uses.
mkdir -p /etc/postgresql-common/createcluster.d
[ -e /etc/postgresql-common/createcluster.d/reclaim.conf ] ||
	echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/reclaim.conf
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >/dev/null
for package in $optional; do
	if apt-get install -qy --no-install-recommends --dry-run "$package" >/dev/null 2>&1; then
		missing="$missing $package"
	else
		echo "the package manager cannot install $package: the tests that need it are skipped"
	fi
done
[ -n "$missing" ] || exit 0
echo "installing from the package manager: $missing"
# shellcheck disable=SC2086 # the list is split on purpose
apt-get install -qy --no-install-recommends $missing >/dev/null
