# Third part: admitted hits of three instances on one Redis. Sourced by benches/compare.sh.
# shellcheck shell=bash disable=SC2154 # Set by benches/compare.sh.

# The rule below `strict` and below `leased` in benches/rules/exact.yaml, and in benches/rules/auto.yaml; its title, its
# limit, its rate per second and the load.
LIMITS=(
    "window|fixed_window, 100,000|100000|0|"
    "sliding|sliding_window, 100,000|100000|0|"
    "burst|token_bucket of 100,000|100000|0|"
    "refill|token_bucket of 2,000, 20,000 per second|2000|20000|"
    "clients|fixed_window, 1,000 for each of 10,000 keys by Zipf 1.1|1000|0|--keys 10000 --zipf 1.1"
)
# Keys with a limit of 20 and keys that never reach theirs; see benches/rules/auto.yaml.
NEAR="client|100,000 keys by Zipf 1.1, 1 % with a limit of 20|20|0|--keys 100000 --zipf 1.1"
# Long enough to reach the limits.
EXACT_SECONDS=$((SECONDS_EACH > 4 ? SECONDS_EACH : 4))

measure_exactness() {
    local entry run mode round
    # Counters of an earlier run have other keys.
    run=$(date +%s)
    for server in redis redis-b redis-c; do ensure_running "$server"; done
    for round in $(seq "$ROUNDS"); do
        for entry in "${LIMITS[@]}"; do
            for mode in strict leased; do exactness_of "$entry" $mode "--domain exact --descriptor $mode=x,"; done
            if [ -e "$work/rules/auto.yaml" ]; then exactness_of "$entry" auto "--domain auto --descriptor "; fi
        done
        if [ -e "$work/rules/auto.yaml" ]; then exactness_of "$NEAR" auto "--domain auto --descriptor "; fi
    done
}

# Measures one limit in one mode. Uses `run` and `round`.
exactness_of() { # entry mode flags
    local id name limit rate flags report figure degraded
    IFS='|' read -r id name limit rate flags <<<"$1"
    degraded=$(degraded_of redis redis-b redis-c)
    # shellcheck disable=SC2086 # Split into words. A key beyond its limit is found in the report.
    report=$(load "redis redis-b redis-c" $EXACT_SECONDS $3$id="$run-$round-{key}" --connections 6 --streams 16 \
        --admitted-limit "$limit" $flags 2>/dev/null) || true
    degraded=$(($(degraded_of redis redis-b redis-c) - degraded))
    printf '%s\t%s' "$2" "$name|$limit|$rate" >>"$work/exactness"
    for figure in requests total beyond denied_within denied_early seconds max over_limit; do
        printf '\t%s' "$(number $figure <<<"$report")" >>"$work/exactness"
    done
    printf '\t%s\n' "$degraded" >>"$work/exactness"
    log "round $round of $ROUNDS: $2 $name: $(number total <<<"$report") admitted," \
        "$(number beyond <<<"$report") beyond"
}

report_exactness() {
    printf '## Exactness\n\nThree instances with their defaults on one Redis, 96 requests in flight, %s s for each row and round; sums of' \
        $EXACT_SECONDS
    printf ' all rounds. A false denial is a\nrequest that was denied while the limit would not have been reached even'
    printf ' if all in flight had passed, or a hit that\nis missing from the limit at the end. For the bucket that refills'
    printf ' it is the difference to its refill in the time\nmeasured, which is exact to a few milliseconds, 0.1 %%.\n\n'
    awk -f benches/compare/exactness.awk "$work/exactness"
}
