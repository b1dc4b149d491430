# Second part: latency of responses. Sourced by benches/compare.sh.
# shellcheck shell=bash disable=SC2154 # Set by benches/compare.sh.

# A row of costs, the requests per second, and the targets of p50, p99 and p99.9 in µs.
LATENCIES=(
    "floor|20000|||"
    "redis-100k|20000|300|1000|2500"
    "floor|5000|||"
    "redis-100k|5000||500|"
)
# A row of costs with few requests on one connection, and the target of its p99 beside a busy connection, as a multiple
# of its p99 alone.
QUIET_RATE=500
QUIET=("floor 3" "redis-1 3")

measure_latency() {
    local entry row id servers flags rate report degraded alone beside busy
    for round in $(seq "$ROUNDS"); do
        for entry in "${LATENCIES[@]}"; do
            IFS='|' read -r id rate _ <<<"$entry"
            row=$(row_of "$id")
            IFS='|' read -r _ _ servers flags _ <<<"$row"
            ensure_running "$servers"
            degraded=$(degraded_of "$servers")
            # shellcheck disable=SC2086 # Split into words.
            report=$(load "$servers" "$LATENCY_SECONDS" --rate "$rate" --warmup 1s $flags)
            degraded=$(($(degraded_of "$servers") - degraded))
            printf '%s\t%s' "$round" "$entry" >>"$work/latency"
            for figure in p50 p99 p99.9 requests ok over_limit; do
                printf '\t%s' "$(number $figure <<<"$report")" >>"$work/latency"
            done
            printf '\t%s\n' "$degraded" >>"$work/latency"
            log "round $round of $ROUNDS: $id at $rate per second: p99 $(number p99 <<<"$report") µs"
        done
        for entry in "${QUIET[@]}"; do
            row=$(row_of "${entry%% *}")
            IFS='|' read -r id _ servers flags _ <<<"$row"
            ensure_running "$servers"
            # shellcheck disable=SC2086
            alone=$(quiet "$servers" $flags | number p99)
            # The server has to be the bottleneck, not the processor of the load generator.
            # shellcheck disable=SC2086
            nice -n 10 "$load_generator" --target "http://127.0.0.1:${PORTS[$servers]}" --domain bench --quiet \
                --connections 1 --streams 64 --warmup 0 --duration "$((SECONDS_EACH + 2))s" $flags >/dev/null &
            busy=$!
            sleep 0.5
            # shellcheck disable=SC2086
            beside=$(quiet "$servers" $flags | number p99)
            wait $busy
            printf '%s\t%s\t%s\t%s\n' "$round" "$entry" "$alone" "$beside" >>"$work/quiet"
            log "round $round of $ROUNDS: $id, a quiet connection: p99 $alone µs, beside a busy one $beside µs"
        done
    done
}

quiet() { # servers flags...
    load "$1" "$SECONDS_EACH" --connections 1 --streams 16 --rate $QUIET_RATE "${@:2}"
}

report_latency() {
    printf '## Latency\n\nOpen loop, 4 connections, %s s in each round; from the time that a request was due. Medians of' \
        "$LATENCY_SECONDS"
    printf ' the rounds.\n%s rules are loaded. The load, tollgate and Redis share %s processors.\n\n' \
        "$(cat "$work"/rules/*.yaml | grep -c rate_limit:)" "$(nproc)"
    cut -d'|' -f1,2 <(printf '%s\n' "${ROWS[@]}") >"$work/names"
    awk -f benches/compare/median.awk -f benches/compare/latency.awk "$work/names" "$work/latency"
    printf '\nOne connection with %s requests per second, alone and beside one that keeps 64 in flight.\n' $QUIET_RATE
    printf 'The ratio is the median of the ratios of the rounds, hence not the quotient of the columns.\n\n'
    awk -f benches/compare/median.awk -f benches/compare/named.awk -f benches/compare/quiet.awk "$work/names" "$work/quiet"
}
