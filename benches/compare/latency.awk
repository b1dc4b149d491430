# The table of latencies: row, target, rate, p50 and p99 of each round.
{
    if (id == "floor") floor = $5
    rates[id] = rates[id] " " $3
    p50s[id] = p50s[id] " " $4
    p99s[id] = p99s[id] " " $5
    ratios[id] = ratios[id] " " $5 / floor
}

END {
    print "| workload | requests per second | p50 | p99 | of bare tonic’s | target | met |"
    print "|---|---|---|---|---|---|---|"
    for (at = 1; at <= rows; at++) {
        id = order[at]
        ratio = median(ratios[id])
        printf "| %s | %d | %d µs | %d µs | %.2f | %s | %s |\n", name[id], median(rates[id]), median(p50s[id]),
            median(p99s[id]), ratio, target[id] ? "≤ " target[id] : "–",
            target[id] ? (ratio <= target[id] ? "yes" : "**no**") : "–"
    }
}
