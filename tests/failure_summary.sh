#!/usr/bin/env bash
# Lists the failed tests from the output of `cargo test`: for each, the places of its panics and the first lines of their
# messages. For logs of which only the end is retained.
set -euo pipefail

printf '\n== what failed\n'
awk '
    # What a test said is repeated under its name when all have run.
    /^---- .* stdout ----$/ { name = $2; is_told = 0; left = 0; next }
    /^failures:$/ { name = "" }
    name != "" && / panicked at / {
        if (!is_told) { is_told = 1; failed++; printf "\n%s\n", name }
        sub(/^thread .* panicked at /, "panicked at ")
        left = 12
    }
    /^$/ || /^stack backtrace:$/ || /^note: run with / { left = 0 }
    left > 0 { print "    " substr($0, 1, 300); left-- }
    # What was not built, and a program that ended in the middle of its tests.
    /^error(\[|:)/ && !/^error: (test failed, to rerun|[0-9]+ targets? failed)/ { others[++count] = $0 }
    END {
        if (count) print ""
        for (line = 1; line <= count; line++) print substr(others[line], 1, 300)
        printf "\n%d failed with a panic\n", failed
    }
' "$1"
