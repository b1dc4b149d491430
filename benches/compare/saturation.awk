# The table of exactness at saturation, from the measurements of each round.
BEGIN { FS = "\t" }

{
    if (!($1 in requests)) order[++rows] = $1
    requests[$1] += $2
    errors[$1] += $2 - $3 - $4
    admitted[$1] += $5
    sum[$1] += $6
    if ($6 > worst[$1]) worst[$1] = $6
    if ($6 > ($9 ? beyond : 0)) missed[$1] = 1
    missing[$1] += $7
    p99s[$1] = p99s[$1] " " $8
    degraded[$1] += $9
}

END {
    print "| algorithm | requests | admitted | errors | degraded | admitted beyond | in the worst round | false denials | p99 | met |"
    print "|---|---|---|---|---|---|---|---|---|---|"
    for (at = 1; at <= rows; at++) {
        id = order[at]
        printf "| %s | %d | %d | %d | %d | %d | %d | %d | %d µs | %s |\n", id, requests[id], admitted[id], errors[id],
            degraded[id], sum[id], worst[id], missing[id], median(p99s[id]), missed[id] || errors[id] ? "**no**" : "yes"
    }
}
