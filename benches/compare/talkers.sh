# Sixth part: cost of top talkers. Sourced by benches/compare.sh.
#
# The servers with and without it alternate, in another order in each round, so that other load affects both equally.
# shellcheck shell=bash disable=SC2034,SC2154 # Shared with the other parts.
TALKERS_TARGET=1.03
TALKERS_ROWS=(
    "memory, 1 key|--descriptor client=0"
    "memory, 100,000 keys|$CLIENTS"
    "memory, denied, 1 key|--descriptor denied=0"
    "memory, 3 descriptors, 100,000 keys|$TAG"
)

measure_talkers() {
    local row name flags round server servers figures
    # A new one, without the counters of earlier parts, which cost cache misses.
    if [ -n "${PIDS[memory]:-}" ]; then stop memory; fi
    ensure_running memory
    ensure_running memory-no-talkers
    for row in "${TALKERS_ROWS[@]}"; do
        for server in memory memory-no-talkers; do warm_up "$server" "${row#*|}"; done
    done
    for round in $(seq "$ROUNDS"); do
        for row in "${TALKERS_ROWS[@]}"; do
            IFS='|' read -r name flags <<<"$row"
            servers="memory memory-no-talkers"
            if [ $((round % 2)) = 0 ]; then servers="memory-no-talkers memory"; fi
            for server in $servers; do
                # shellcheck disable=SC2086 # Split into words.
                figures=$(measure "$server" $flags)
                printf '%s\t%s\t%s\t%s\n' "$name" "$round" "$server" "$figures" >>"$work/talkers"
            done
            log "round $round of $ROUNDS: top talkers: $name"
        done
    done
}

report_talkers() {
    printf '## Top talkers\n\nCPU time per decision, with'
    # shellcheck disable=SC2016 # Backquotes of Markdown.
    printf ' `--top-talkers=true` and `false`. The ratio\nis the median of those within one round.\n\n'
    awk -v target=$TALKERS_TARGET -f benches/compare/median.awk -f benches/compare/talkers.awk "$work/talkers"
}
