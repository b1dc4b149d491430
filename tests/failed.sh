#!/usr/bin/env bash
# Tells the tests that failed, from what `cargo test` said, and why each did: where it panicked, and the first lines of
# its message. For logs of which only the end is kept.
set -euo pipefail

printf '\n== what failed\n'
awk '
    # What a test said is repeated under its name when all have run.
    /^---- .* stdout ----$/ { name = $2; told = 0; next }
    /^failures:$/ { name = "" }
    name != "" && / panicked at / {
        if (!told++) { failed++; printf "\n%s\n", name }
        sub(/^thread .* panicked at /, "panicked at ")
        left = 12
    }
    /^stack backtrace:$/ || /^note: run with / { left = 0 }
    left > 0 { print "    " substr($0, 1, 300); left-- }
    # A process that ends in the middle of its tests, and what was not built.
    /^error(\[|:)/ && !/^error: (test failed, to rerun|[0-9]+ targets? failed)/ { others[++count] = $0 }
    END {
        for (line = 1; line <= count; line++) print substr(others[line], 1, 300)
        printf "\n%d failed with a panic\n", failed
    }
' "$1"
