#!/usr/bin/env bash
# Writes the tables that follow from benches/RESULTS.md into docs/guides/capacity.md, between their markers.
set -euo pipefail
cd "$(dirname "$0")/../.."

tables=$(awk -f benches/compare/capacity.awk benches/RESULTS.md)
page=$(TABLES="$tables" awk '
    /^<!-- end of capacity -->$/ { inside = 0 }
    !inside { print }
    /^<!-- capacity: / { print ENVIRON["TABLES"]; inside = 1 }
' docs/guides/capacity.md)
printf '%s\n' "$page" >docs/guides/capacity.md
