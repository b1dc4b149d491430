#!/usr/bin/env bash
# Checks the subjects of commits: `area: imperative`, at most 72 characters. Merges are left out, and so are the commits
# before this rule.
set -euo pipefail

# The last commit before the rule.
BASE=7569c55beb4a052a0b55bfd80e3080135745adc7

if [ "$(git rev-parse --is-shallow-repository)" = true ] || ! git merge-base --is-ancestor "$BASE" HEAD 2>/dev/null; then
    echo "commit subjects are not checked: the history is incomplete"
    exit 0
fi
bad=$(git log --no-merges --format='%h %s' "$BASE..HEAD" | grep -vE '^[0-9a-f]+ [a-z][a-z0-9_/.-]*(, [a-z0-9_/.-]+)*: [a-z].{1,}[^.]$' || true)
long=$(git log --no-merges --format='%h %s' "$BASE..HEAD" | awk '{ hash = $1; sub(/^[^ ]+ /, ""); if (length($0) > 72) print hash, $0 }')
if [ -n "$bad$long" ]; then
    # shellcheck disable=SC2016 # Backquotes of the message.
    printf 'expected `area: imperative` with at most 72 characters:\n%s\n' "$(printf '%s\n%s' "$bad" "$long" | sort -u)"
    exit 1
fi
