# First part: CPU time per decision. Sourced by benches/compare.sh.
# shellcheck shell=bash disable=SC2154

measure_costs() {
    local id name servers flags figures server round run
    # Counters of an earlier run have other keys.
    run=$(date +%s)
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
            figures=$(measure "$servers" ${flags//'{round}'/$run-$round})
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
    load "$1" 2 ${2//'{round}'/warm} >/dev/null
}

report_costs() {
    printf '## CPU time per decision\n\n4 connections with 32 requests in flight each, limits far away unless denied;'
    printf ' tollgate with its defaults, hence\na worker for each of %s processors. F is the service CPU of the first' "$(nproc)"
    printf ' row, which has as many threads. Ratios are those of\none round. Redis is all of its processes together.'
    printf ' Degraded is the number of descriptors decided without Redis, since it\ndid not reply in time. A row is not'
    # shellcheck disable=SC2016 # Backquotes of Markdown.
    printf ' met with any error, or with more than 0.01 %% degraded. The rule is a\n`fixed_window` unless the row says'
    printf ' otherwise. The number of rules is %s unless the row says otherwise. With one rule per\nkey, all match' \
        "$(cat "$work"/rules/*.yaml | grep -c rate_limit:)"
    printf ' equally often.\n\n'
    awk -f benches/compare/median.awk -f benches/compare/costs.awk "$work/rows" "$work/costs"
}
