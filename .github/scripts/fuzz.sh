#!/usr/bin/env bash
# Fuzzes every target of fuzz/ for a time in seconds each. Inputs that fail stay in fuzz/artifacts.
#
# usage: fuzz.sh SECONDS
set -euo pipefail
cd "$(dirname "$0")/../.."

failed=()
for target in fuzz/fuzz_targets/*.rs; do
    name=$(basename "$target" .rs)
    mkdir -p "fuzz/corpus/$name"
    echo "== $name"
    cargo +nightly fuzz run "$name" -- -max_total_time="$1" -rss_limit_mb=2048 || failed+=("$name")
done
if [ "${#failed[@]}" -gt 0 ]; then
    echo "failed: ${failed[*]}" >&2
    exit 1
fi
