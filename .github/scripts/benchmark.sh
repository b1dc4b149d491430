#!/usr/bin/env bash
# Measures two commits in turn with benches/compare.sh of the second, and writes the comparison as Markdown to OUT/comment.md
# if a row got slower, besides OUT/base.md and OUT/head.md.
#
# usage: benchmark.sh BASE HEAD OUT
set -euo pipefail
cd "$(dirname "$0")/../.."

base=$1 head=$2
mkdir -p "$3"
out=$(cd "$3" && pwd)
# Both are measured as multiples of the same bare gRPC service, whose figure depends on the machine alone.
export ONLY=${ONLY:-'^(memory-100k|redis-1|redis-100k|redis-3-of-a-tag|leased-100k|denied-1)$'}
export ROUNDS=${ROUNDS:-5} SECONDS_EACH=${SECONDS_EACH:-4}
# Without profile-guided optimization, whose profiles differ from run to run.
build() { # commit, name
    local tree=$out/tree-$2
    git worktree add --quiet --detach --force "$tree" "$1"
    # One by one: an example adds features that only tests use to the program beside it.
    for target in --bin=tollgate --example=echo; do
        (cd "$tree" && cargo build --profile dist --locked --target-dir "$out/target" "$target")
    done
    cp "$out/target/dist/tollgate" "$out/tollgate-$2"
    cp "$out/target/dist/examples/echo" "$out/echo"
    git worktree remove --force "$tree"
}
build "$base" base
build "$head" head
for name in base head; do
    TOLLGATE=$out/tollgate-$name RELEASE=$out/tollgate-$name ECHO=$out/echo benches/compare.sh >"$out/$name.md"
done
rm -r "$out/target" "$out/tollgate-base" "$out/tollgate-head" "$out/echo"
python3 .github/scripts/regressions.py "$out/base.md" "$out/head.md" >"$out/comment.md" || [ -s "$out/comment.md" ]
