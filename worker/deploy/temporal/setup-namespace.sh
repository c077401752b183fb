#!/bin/sh
# Makes the namespace TEMPORAL_NAMESPACE at TEMPORAL_ADDRESS, whose closed workflows are kept for NAMESPACE_RETENTION, such
# as 720h. Safe to run again: an existing one gets the retention. Its search attributes are `worker migrate`'s.
# TEMPORAL_TOOL is the path of `temporal`, where it is not on PATH.
set -eu

: "${TEMPORAL_ADDRESS:?is missing: host:port of the Temporal server}" "${TEMPORAL_NAMESPACE:?is missing}"
: "${NAMESPACE_RETENTION:?is missing: how long closed workflows are kept, such as 720h}"

temporal() { "${TEMPORAL_TOOL:-temporal}" "$@"; }

wait_for() { # WHAT COMMAND…
	what=$1
	shift
	tries=0
	until said=$("$@" 2>&1); do
		tries=$((tries + 1))
		if [ "$tries" -ge 60 ]; then
			echo "$what did not come within a minute: $said" >&2
			exit 1
		fi
		sleep 1
	done
}

wait_for "the Temporal server" temporal operator cluster health
if temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1; then
	temporal operator namespace update --namespace "$TEMPORAL_NAMESPACE" --retention "$NAMESPACE_RETENTION"
else
	temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention "$NAMESPACE_RETENTION"
fi
# The server's parts learn of a new namespace some seconds later.
wait_for "the namespace $TEMPORAL_NAMESPACE" temporal workflow list --namespace "$TEMPORAL_NAMESPACE" --limit 1
echo "namespace $TEMPORAL_NAMESPACE is ready; closed workflows are kept for $NAMESPACE_RETENTION"
