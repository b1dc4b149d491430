# The table of latencies: row, rate, targets, and the quantiles and counts of each round.
BEGIN { FS = "\t" }

FILENAME ~ /names$/ {
    split($0, field, "|")
    name[field[1]] = field[2]
    next
}

{
    if (!($2 in seen)) order[++rows] = $2
    seen[$2] = 1
    for (at = 1; at <= 3; at++) quantiles[$2, at] = quantiles[$2, at] " " $(at + 2)
    requests[$2] += $6
    errors[$2] += $6 - $7 - $8
    degraded[$2] += $9
}

END {
    print "| workload | requests per second | p50 | p99 | p99.9 | targets | requests | errors | degraded | met |"
    print "|---|---|---|---|---|---|---|---|---|---|"
    split("p50 p99 p99.9", label, " ")
    for (row = 1; row <= rows; row++) {
        id = order[row]
        split(id, part, "|")
        targets = figures = ""
        missed = errors[id] > 0
        for (at = 1; at <= 3; at++) {
            value = median(quantiles[id, at])
            figures = figures sprintf(" %.2f ms |", value / 1000)
            target = part[at + 2]
            if (target == "") continue
            targets = targets (targets ? ", " : "") label[at] " ≤ " sprintf("%.1f ms", target / 1000)
            if (value > target) missed = 1
        }
        printf "| %s | %d |%s %s | %d | %d | %d | %s |\n", name[part[1]], part[2], figures, targets ? targets : "–",
            requests[id], errors[id], degraded[id], targets ? (missed ? "**no**" : "yes") : "–"
    }
}
