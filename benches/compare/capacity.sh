#!/usr/bin/env bash
# Puts the tables that follow from benches/RESULTS.md into the README, between the lines that mark them.
set -euo pipefail
cd "$(dirname "$0")/../.."

tables=$(awk -f benches/compare/capacity.awk benches/RESULTS.md)
readme=$(TABLES="$tables" awk '
    /^<!-- end of capacity -->$/ { inside = 0 }
    !inside { print }
    /^<!-- capacity: / { print ENVIRON["TABLES"]; inside = 1 }
' README.md)
printf '%s\n' "$readme" >README.md
