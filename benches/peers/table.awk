# A table for each load, from benches/peers/results.tsv. Medians of the rounds, sums of the counts.
BEGIN { FS = "\t" }

FNR == 1 { next }

{
    load = $2
    id = load FS $3
    if (!(load in seen)) loads[++count] = load
    seen[load] = 1
    if (!(id in rounds)) servers[load] = servers[load] (servers[load] == "" ? "" : FS) $3
    rounds[id]++
    if (rounds[id] > most) most = rounds[id]
    service[id] = service[id] " " $9 / $6
    redis[id] = redis[id] " " $10 / $6
    sums[id, $4] = ($9 + $10) / $6
    if ($3 == "bare tonic") floor[load, $4] = $9 / $6
    rates[id] = rates[id] " " $11
    p50s[id] = p50s[id] " " $12
    p99s[id] = p99s[id] " " $13
    p999s[id] = p999s[id] " " $14
    errors[id] += $6 - $7 - $8
    degraded[id] += $15
    admitted[id] += $16
    beyond[id] += $17
    seconds[load] = $5
    requests[id] += $6
}

function ratio(id, load,   round, list) {
    for (round = 1; round <= rounds[id]; round++)
        if (floor[load, round]) list = list " " sums[id, round] / floor[load, round]
    return list == "" ? "–" : sprintf("%.1f", median(list))
}

function milliseconds(list) { return sprintf("%.2f ms", median(list) / 1000) }

END {
    for (at = 1; at <= count; at++) {
        load = loads[at]
        limited = load ~ /per key/
        unit = (most > 1) ? "round" : "service"
        printf "\n### %s\n\n%d s for each %s.\n\n", load, seconds[load] + 0.5, unit
        printf "| service | CPU | of Redis | both, of bare tonic | responses per second | p50 | p99 | p99.9 | errors | degraded |"
        print limited ? " admitted | beyond |" : ""
        print "|---|---|---|---|---|---|---|---|---|---|" (limited ? "---|---|" : "")
        names = split(servers[load], name, FS)
        for (row = 1; row <= names; row++) {
            id = load FS name[row]
            bare = name[row] == "bare tonic"
            printf "| %s | %.1f µs | %s | %s | %d | %s | %s | %s | %d | %s |", name[row], median(service[id]),
                bare ? "–" : sprintf("%.1f µs", median(redis[id])), ratio(id, load), median(rates[id]),
                milliseconds(p50s[id]), milliseconds(p99s[id]), milliseconds(p999s[id]), errors[id],
                name[row] ~ /^tollgate/ ? degraded[id] : "–"
            if (limited) printf " %s | %s |", bare ? "–" : admitted[id], bare ? "–" : beyond[id]
            print ""
        }
    }
}
