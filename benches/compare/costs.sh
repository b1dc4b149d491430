# First part: CPU time per decision. Sourced by benches/compare.sh.
# shellcheck shell=bash disable=SC2154

# Leases are as busy as they get after two long horizons, and their last tokens are refunded as much later.
LEASE_SECONDS=11

# Commands in a fifth of a second below which a Redis counts as idle.
QUIET_COMMANDS=20

measure_costs() {
    local id name servers flags figures server round run floor_flags
    # Counters of an earlier run have other keys.
    run=$(date +%s)
    chosen_rows >"$work/rows"
    floor_flags=$(row_of floor | cut -d'|' -f4)
    log "warming up"
    while IFS='|' read -r id name servers flags _ _ <&3; do
        if [[ $servers != cluster-* ]]; then warm_up "$servers" "$flags"; fi
    done 3<"$work/rows"
    for round in $(seq "$ROUNDS"); do
        while IFS='|' read -r id name servers flags _ _ <&3; do
            # A new cluster is started in each round.
            if [[ $servers == cluster-* ]]; then warm_up "$servers" "$flags"; fi
            # Here, because servers that the subshell below started would be lost to this one.
            for server in $servers; do ensure_running "$server"; done
            # F just before the row: the speed of a shared machine changes within a round.
            if [ "$id" != floor ]; then
                # shellcheck disable=SC2086
                printf '%s\t%s\t%s\n' "$round" "F:$id" "$(measure echo $floor_flags)" >>"$work/costs"
            fi
            # shellcheck disable=SC2046
            wait_for_quiet $(redis_of "${servers%% *}")
            if [[ $id == *leased* ]]; then warm_up "$servers" "$flags" $LEASE_SECONDS; fi
            # shellcheck disable=SC2086
            figures=$(measure "$servers" ${flags//'{round}'/$run-$round})
            printf '%s\t%s\t%s\n' "$round" "$id" "$figures" >>"$work/costs"
            log "round $round of $ROUNDS: $name: $(cut -f4 <<<"$figures") per second"
            if [[ $id == *leased* ]]; then sleep $LEASE_SECONDS; fi
        done 3<"$work/rows"
    done
    stop_clusters
}

# Waits until refunds of the row before have ended: until these servers execute few commands, which are the metrics'.
wait_for_quiet() { # port...
    local port before after
    for port in "$@"; do
        after=$(commands_of "$port") before=-1000
        for _ in $(seq 25); do
            if ((after - before < QUIET_COMMANDS)); then break; fi
            sleep 0.2
            before=$after after=$(commands_of "$port")
        done
    done
}
commands_of() { # port
    redis-cli -p "$1" info stats | tr -d '\r' | awk -F: '$1 == "total_commands_processed" { print $2 }'
}

# Starts the servers of a row and creates its counters before the measurement.
warm_up() { # servers flags [seconds]
    local server
    for server in $1; do ensure_running "$server"; done
    # shellcheck disable=SC2086 # Split into words.
    load "$1" "${3:-2}" ${2//'{round}'/warm} >/dev/null
}

report_costs() {
    printf '## CPU time per decision\n\n4 connections with 32 requests in flight each, limits far away unless denied;'
    printf ' tollgate with its defaults, hence\na worker for each of %s processors. F is the service CPU of the first' "$(nproc)"
    printf ' row, which has as many threads, measured again\njust before each row; ratios are medians of those of the rounds.'
    printf ' Redis is all of its processes together. Degraded\nis the number of descriptors decided without Redis, since it'
    printf ' did not reply in time. A row is not met with any error, or with\nmore than 0.01 %% degraded. The rule is a'
    # shellcheck disable=SC2016 # Backquotes of Markdown.
    printf ' `fixed_window` unless the row says otherwise. The number of rules is %s unless\nthe row says otherwise.' \
        "$(cat "$work"/rules/*.yaml | grep -c rate_limit:)"
    printf ' With one rule per key, all match equally often.\n\n'
    awk -f benches/compare/median.awk -f benches/compare/costs.awk "$work/rows" "$work/costs"
}
