#!/usr/bin/env bash
# Pushes the packaged chart as an OCI artefact, and prints its digest.
#
# usage: CHARTS=NAME push_chart.sh VERSION OUT
set -euo pipefail

# Helm reports it on standard error.
report=$(helm push "$2/tollgate-$1.tgz" "oci://$CHARTS" 2>&1)
echo "$report" >&2
sed -n 's/^Digest: \(sha256:[0-9a-f]\{64\}\)$/\1/p' <<<"$report" | grep .
