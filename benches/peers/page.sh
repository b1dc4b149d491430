#!/usr/bin/env bash
# Writes the tables that follow from benches/peers/results.tsv into docs/guides/comparison.md, between their markers.
set -euo pipefail
cd "$(dirname "$0")/../.."

tables=$(awk -f benches/compare/median.awk -f benches/peers/table.awk benches/peers/results.tsv)
page=$(TABLES="$tables" awk '
    /^<!-- end of comparison -->$/ { inside = 0 }
    !inside { print }
    /^<!-- comparison: / { print ENVIRON["TABLES"]; print ""; inside = 1 }
' docs/guides/comparison.md)
printf '%s\n' "$page" >docs/guides/comparison.md
