# Second part: latency of responses. Sourced by benches/compare.sh.
# shellcheck shell=bash disable=SC2154 # Set by benches/compare.sh.

# A row of costs, and its target as a multiple of the baseline's p99.
LATENCIES=("floor " "memory-100k 2" "redis-100k 3")
# Likewise for one connection with few requests.
QUIET_RATE=500
QUIET=("floor 3" "memory-1 3" "redis-1 3")

measure_latency() {
    local entry row id servers flags rate report alone beside busy
    for round in $(seq "$ROUNDS"); do
        for entry in "${LATENCIES[@]}"; do
            row=$(row_of "${entry%% *}")
            IFS='|' read -r id _ servers flags _ _ <<<"$row"
            ensure_running "$servers"
            # shellcheck disable=SC2086 # Split into words.
            rate=$(load "$servers" "$SECONDS_EACH" $flags | number rate)
            rate=$((${rate%.*} / 4))
            # shellcheck disable=SC2086
            report=$(load "$servers" "$SECONDS_EACH" $flags --rate "$rate")
            printf '%s\t%s\t%s\t%s\t%s\n' "$round" "$entry" "$rate" "$(number p50 <<<"$report")" \
                "$(number p99 <<<"$report")" >>"$work/latency"
            log "round $round of $ROUNDS: $id at $rate per second: p99 $(number p99 <<<"$report") µs"
        done
        for entry in "${QUIET[@]}"; do
            row=$(row_of "${entry%% *}")
            IFS='|' read -r id _ servers flags _ _ <<<"$row"
            ensure_running "$servers"
            # shellcheck disable=SC2086
            alone=$(quiet "$servers" $flags | number p99)
            # The server has to be the bottleneck, not the processor of the load generator.
            # shellcheck disable=SC2086
            nice -n 10 "$tollgate" load --target "http://127.0.0.1:${PORTS[$servers]}" --domain bench --quiet \
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
    printf '## Latency\n\nOpen loop, 4 connections, at a quarter of the throughput of a closed loop in the'
    printf ' same round; from the\ntime that a request was due.\n\n'
    cut -d'|' -f1,2 <(printf '%s\n' "${ROWS[@]}") >"$work/names"
    awk -f benches/compare/median.awk -f benches/compare/named.awk -f benches/compare/latency.awk "$work/names" \
        "$work/latency"
    printf '\nOne connection with %s requests per second, alone and beside one that keeps 64 in flight, on one' \
        $QUIET_RATE
    printf ' worker.\n\n'
    awk -f benches/compare/median.awk -f benches/compare/named.awk -f benches/compare/quiet.awk "$work/names" "$work/quiet"
}
