#!/usr/bin/env bash
# Prints the notes of a release: its section of CHANGELOG.md without the heading.
#
# usage: notes.sh VERSION
set -euo pipefail
cd "${ROOT:-$(dirname "$0")/../..}"

notes=$(awk -v heading="## [$1]" '
    index($0, heading) == 1 { inside = 1; next }
    /^## / || /^\[.*\]: / { inside = 0 }
    inside' CHANGELOG.md)
if [ -z "${notes//[$'\n' ]/}" ]; then
    echo "CHANGELOG.md has no notes of $1" >&2
    exit 1
fi
echo "$notes"
