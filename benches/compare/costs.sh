# First part: CPU time per decision. Sourced by benches/compare.sh.
# shellcheck shell=bash disable=SC2154

measure_costs() {
    local id name servers flags figures server round
    chosen_rows >"$work/rows"
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
            # shellcheck disable=SC2086
            figures=$(measure "$servers" $flags)
            printf '%s\t%s\t%s\n' "$round" "$id" "$figures" >>"$work/costs"
            log "round $round of $ROUNDS: $name: $(cut -f4 <<<"$figures") per second"
        done 3<"$work/rows"
    done
    stop_clusters
}

# Starts the servers of a row and creates its counters before the measurement.
warm_up() { # servers flags
    local server
    for server in $1; do ensure_running "$server"; done
    # shellcheck disable=SC2086 # Split into words.
    load "$1" 2 $2 >/dev/null
}

report_costs() {
    printf '## CPU time per decision\n\n4 connections with 32 requests in flight each, limits far away unless denied,'
    printf ' one worker. F is\nthe CPU time of the first row. Ratios are those of one round. Redis is all of its'
    printf ' processes together; 0 means no more than\nwhen idle. The number of rules is 15 unless the row'
    printf ' says otherwise. With one rule per key, all match\nequally often.\n\n'
    awk -f benches/compare/median.awk -f benches/compare/costs.awk "$work/rows" "$work/costs"
}
