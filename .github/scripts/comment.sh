#!/usr/bin/env bash
# Puts OUT/comment.md under the pull request in OUT/number, in place of its previous comment. The files come from a job
# that ran the pull request's code: the number has to be one, and the text is bounded.
#
# usage: comment.sh OUT
set -euo pipefail

number=$(head -c 12 "$1/number")
[[ $number =~ ^[0-9]+$ ]] || {
    echo "$1/number is not a number" >&2
    exit 1
}
if [ ! -s "$1/comment.md" ]; then
    echo "no regression"
    exit
fi
body=$(mktemp)
trap 'rm -f "$body"' EXIT
head -c 20000 "$1/comment.md" >"$body"
gh pr comment "$number" --repo "$GITHUB_REPOSITORY" --edit-last --create-if-none --body-file "$body"
