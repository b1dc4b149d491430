# The table of quiet connections: row, target, p99 alone and p99 beside a busy connection, for each round.
{
    alone[id] = alone[id] " " $3
    beside[id] = beside[id] " " $4
    ratios[id] = ratios[id] " " $4 / $3
}

END {
    print "| workload | p99 alone | p99 beside a busy one | ratio | target | met |"
    print "|---|---|---|---|---|---|"
    for (at = 1; at <= rows; at++) {
        id = order[at]
        ratio = median(ratios[id])
        printf "| %s | %d µs | %d µs | %.2f | ≤ %s | %s |\n", name[id], median(alone[id]), median(beside[id]), ratio,
            target[id], ratio <= target[id] ? "yes" : "**no**"
    }
}
