#!/bin/sh
# Lets spin try every behaviour of the models in this folder, and prints a line of figures for each search. Where one finds an
# error it shows the steps that lead there, and fails. Called as "check.sh FOLDER SEARCH...", it makes these searches of the
# models in that folder: jobs, ends, refunds.
set -eu
models=$(cd "${1:-$(dirname "$0")}" && pwd)
[ $# = 0 ] || shift
wanted=" ${*:-jobs ends refunds} "
if ! command -v spin >/dev/null 2>&1 || ! command -v gcc >/dev/null 2>&1; then
	echo "the models are not checked: spin or gcc is missing (Debian's packages spin and gcc)"
	exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
found=0

# search NAME WHAT MODEL DEFINITION COMPILER-OPTION [RUN-OPTION]
search() {
	case "$wanted" in *" $1 "*) ;; *) return 0 ;; esac
	what=$2 model=$models/$3 definition=$4 trail=$3.trail
	spin "-D$definition" -a "$model" >out 2>&1 && gcc "${OPTIMIZE:--O1}" -w "$5" -DMEMLIM=2000 -o pan pan.c >>out 2>&1 || { cat out; exit 1; }
	rm -f "$trail"
	shift 5
	./pan "$@" -m200000 -w20 >out 2>&1 || true
	awk -v what="$what" '
		/errors: / { depth = $0; sub(/.*depth reached /, "", depth); sub(/,.*/, "", depth); errors = $NF }
		/ states, stored/ { states = $1 }
		/ transitions / { transitions = $1 }
		/Search not completed|max search depth too small/ { errors += errors == 0 }
		END { if (errors == "") errors = "no result"
			printf "%s: states %s, transitions %s, depth %s, errors: %s\n", what, states, transitions, depth, errors
			exit errors != "0" }' out || {
		found=1
		grep '^pan:[0-9]*: ' out || cat out
		[ ! -e "$trail" ] || spin "-D$definition" -k "$trail" -p -g "$model" 2>&1 | tail -60
	}
}

search jobs "jobs.pml" jobs.pml LOSSES -DSAFETY
search ends "jobs.pml, nothing lost, nothing goes on for ever" jobs.pml NOTHING_LOST -DNP -l
search refunds "refunds.pml" refunds.pml LOSSES -DSAFETY
exit "$found"
