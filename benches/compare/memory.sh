# Fifth part: memory of counters. Sourced by benches/compare.sh.
# shellcheck shell=bash disable=SC2154 # Set by benches/compare.sh.
MEMORY_KEYS=1000000

measure_memory() {
    local before report
    # Separate servers, so that they hold no other counters.
    if [ -n "${PIDS[memory]:-}" ]; then stop memory; fi
    ensure_running memory
    # Connections and buffers are allocated before the measurement.
    load memory 1 --descriptor client=0 >/dev/null
    before=$(resident memory)
    report=$(fill memory)
    printf 'memory\t%s\t%s\n' $(($(resident memory) - before)) "$(number seen <<<"$report")" >>"$work/memory"
    ensure_running redis
    redis-cli -p "$REDIS" flushall >/dev/null
    before=$(used_by_redis)
    report=$(fill redis)
    printf 'Redis\t%s\t%s\n' $(($(used_by_redis) - before)) "$(number seen <<<"$report")" >>"$work/memory"
}

# Sends requests until most of the keys have occurred.
fill() { # server
    load "$1" 20 --descriptor 'client={key}' --keys $MEMORY_KEYS
}
resident() { # server
    awk '$1 == "VmRSS:" { printf "%d", $2 * 1024 }' "/proc/${PIDS[$1]}/status"
}
used_by_redis() {
    redis-cli -p "$REDIS" info memory | tr -d '\r' | awk -F: '$1 == "used_memory" { printf "%d", $2 }'
}

report_memory() {
    printf '## Memory\n\nGrowth for a million clients with one counter each: of the resident set for the memory store, and of'
    printf ' the memory in\nuse for Redis.\n\n| store | live counters | bytes per counter | target | met |\n|---|---|---|---|---|\n'
    awk -F'\t' '{
        bytes = $2 / $3
        has_target = $1 == "memory"
        printf "| %s | %d | %.0f | %s | %s |\n", $1, $3, bytes, has_target ? "≤ 150" : "–",
            has_target ? (bytes <= 150 ? "yes" : "**no**") : "–"
    }' "$work/memory"
}
