# The table of exactness: mode, limit and results of each run.
BEGIN { FS = "\t" }

{
    id = $2 "\t" $1
    if (!(id in runs)) order[++rows] = id
    runs[id]++
    split($2, limit, "|")
    requests[id] += $3
    admitted[id] += $4
    over_limit[id] += $10
    degraded[id] += $11
    if (limit[3] > 0) {
        # A bucket that refills. The last response may belong to a decision after the end.
        due = limit[2] + limit[3] * $8
        maximum = due + limit[3] * $9 / 1000000
        beyond[id] += $4 > maximum ? $4 - maximum : 0
        missing[id] += $4 < due ? due - $4 : 0
    } else {
        beyond[id] += $5
        missing[id] += $6 > $7 ? $6 : $7
    }
}

END {
    print "| limit | mode | requests | admitted | denied | errors | degraded | admitted beyond | false denials | of decisions below the limit | met |"
    print "|---|---|---|---|---|---|---|---|---|---|---|"
    for (at = 1; at <= rows; at++) {
        id = order[at]
        split(id, part, "\t")
        split(part[1], limit, "|")
        share = admitted[id] ? missing[id] / (admitted[id] + missing[id]) : 1
        # Keys that have another limit than those of the row pass it.
        mixed = limit[1] ~ /% with a limit/
        over = mixed ? "–" : beyond[id]
        met = (mixed || beyond[id] == 0) && share <= (mixed ? 0.0001 : 0.001) ? "yes" : "**no**"
        # A limit that was not reached proves nothing.
        if (!over_limit[id]) met = "not reached"
        printf "| %s | %s | %d | %d | %d | %d | %d | %s | %d | %.4f %% | %s |\n", limit[1], part[2], requests[id], admitted[id],
            over_limit[id], requests[id] - admitted[id] - over_limit[id], degraded[id], over, missing[id], share * 100, met
    }
}
