# The table of the cost of top talkers, from the measurements of each round.
BEGIN { FS = "\t" }

{
    if (!($1 in seen)) {
        seen[$1] = 1
        order[++rows] = $1
    }
    if ($2 > rounds) rounds = $2
    cost[$1, $2, $3] = $5 / $4
    costs[$1, $3] = costs[$1, $3] " " $5 / $4
}

END {
    print "| workload | with | without | ratio | least and most | target | met |"
    print "|---|---|---|---|---|---|---|"
    for (row = 1; row <= rows; row++) {
        name = order[row]
        ratios = ""
        least = most = 0
        for (round = 1; round <= rounds; round++) {
            ratio = cost[name, round, "memory"] / cost[name, round, "memory-no-talkers"]
            ratios = ratios " " ratio
            if (round == 1 || ratio < least) least = ratio
            if (ratio > most) most = ratio
        }
        ratio = median(ratios)
        printf "| %s | %.3f µs | %.3f µs | %.3f | %.3f, %.3f | ≤ %s | %s |\n", name, median(costs[name, "memory"]),
            median(costs[name, "memory-no-talkers"]), ratio, least, most, target, ratio <= target ? "yes" : "**no**"
    }
}
