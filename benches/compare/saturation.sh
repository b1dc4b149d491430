# Fourth part: hits admitted while all processors are busy. Sourced by benches/compare.sh.
# shellcheck shell=bash disable=SC2154 # Set by benches/compare.sh.

# The rule below `saturated` in benches/rules/exact.yaml, and its algorithm. 20 keys of 500 hits each.
SATURATED=("window|fixed_window" "sliding|sliding_window" "bucket|token_bucket" "log|sliding_window_log")
SATURATED_KEYS=20 SATURATED_LIMIT=500
# Beyond all limits together, with descriptors decided without Redis. Without them the target is 0.
SATURATED_BEYOND=10

measure_saturation() {
    local entry id name round run servers server report degraded figure
    # Counters of an earlier run have other keys.
    run=$(date +%s)
    servers="pairs-3 pairs-3-b pairs-3-c"
    for server in $servers; do ensure_running "$server"; done
    for round in $(seq "$ROUNDS"); do
        for entry in "${SATURATED[@]}"; do
            IFS='|' read -r id name <<<"$entry"
            # shellcheck disable=SC2086 # Split into words.
            degraded=$(degraded_of $servers)
            # A key beyond its limit is found in the report.
            report=$(load "$servers" "$SECONDS_EACH" --domain exact --descriptor "saturated=x,$id=$run-$round-{key}" \
                --keys $SATURATED_KEYS --connections 6 --streams 32 --admitted-limit $SATURATED_LIMIT 2>/dev/null) || true
            # shellcheck disable=SC2086
            degraded=$(($(degraded_of $servers) - degraded))
            printf '%s' "$name" >>"$work/saturation"
            for figure in requests ok over_limit total beyond denied_within p99; do
                printf '\t%s' "$(number $figure <<<"$report")" >>"$work/saturation"
            done
            printf '\t%s\n' "$degraded" >>"$work/saturation"
            log "round $round of $ROUNDS: saturated, $name: $(number total <<<"$report") admitted, $degraded degraded"
        done
    done
    stop_clusters
}

report_saturation() {
    printf '## Exactness at saturation\n\nThree instances with their defaults on a cluster of three masters and three'
    printf ' replicas, all on %s processors, 192 requests in\nflight in a closed loop, %s s for each row and round;' \
        "$(nproc)" "$SECONDS_EACH"
    printf ' %s keys of %s. Sums of the rounds, and the worst round. Met is at most\n%s hits of a round beyond the limits,' \
        $SATURATED_KEYS $SATURATED_LIMIT $SATURATED_BEYOND
    printf ' and none where no descriptor was decided without Redis.\n\n'
    awk -v beyond=$SATURATED_BEYOND -f benches/compare/median.awk -f benches/compare/saturation.awk "$work/saturation"
}
