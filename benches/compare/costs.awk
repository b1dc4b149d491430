# The table of costs, from the rows and the measurements of each round.
BEGIN {
    # The share of requests that may be decided without Redis, on a machine that stalls now and then.
    DEGRADED = 0.0001
}

FILENAME ~ /rows$/ {
    split($0, field, "|")
    order[++rows] = field[1]
    name[field[1]] = field[2]
    service_target[field[1]] = field[5]
    redis_target[field[1]] = field[6]
    has_redis[field[1]] = field[3] !~ /^(echo|memory)/
    next
}

{
    split($0, field, "\t")
    round = field[1]
    id = field[2]
    if (round > rounds) rounds = round
    service[id, round] = field[4] / field[3]
    redis[id, round] = field[5] / field[3]
    services[id] = services[id] " " service[id, round]
    redises[id] = redises[id] " " redis[id, round]
    rates[id] = rates[id] " " field[6]
    p99s[id] = p99s[id] " " field[7]
    errors[id] += field[8]
    degraded[id] += field[9]
    requests[id] += field[3]
}

# The factor to a figure of another row, or to F. Rounds are compared one by one, since the machine changes between them, and
# F is that of the measurement just before the row.
function times(figures, id, bases, base,   round, list) {
    if (base == "floor" && id != "floor") base = "F:" id
    for (round = 1; round <= rounds; round++)
        if (bases[base, round]) list = list " " figures[id, round] / bases[base, round]
    return median(list)
}

# The text of a target, and whether it is missed, in `missed`.
function judged(target, figures, id,   part, value) {
    if (target == "") return "–"
    split(target, part, " ")
    if (part[2] == "floor") {
        if (sprintf("%.2f", times(figures, id, service, "floor")) + 0 > part[1]) missed = 1
        return "≤ " part[1] " F"
    }
    value = times(figures, id, figures, part[2])
    if (value > part[1]) missed = 1
    return sprintf("%.2f, ≤ %s × “%s”", value, part[1], name[part[2]])
}

END {
    print "| workload | service CPU | of F | target | Redis CPU | of F | target | responses per second | p99 | errors | degraded | met |"
    print "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for (at = 1; at <= rows; at++) {
        id = order[at]
        missed = errors[id] > 0 || degraded[id] > DEGRADED * requests[id]
        of_service = judged(service_target[id], service, id)
        of_redis = judged(redis_target[id], redis, id)
        has_target = service_target[id] redis_target[id] != ""
        printf "| %s | %.2f µs | %.2f | %s | %s | %s | %s | %d | %d µs | %d | %d | %s |\n", name[id],
            median(services[id]), times(service, id, service, "floor"), of_service,
            has_redis[id] ? sprintf("%.2f µs", median(redises[id])) : "–",
            has_redis[id] ? sprintf("%.2f", times(redis, id, service, "floor")) : "–", of_redis, median(rates[id]),
            median(p99s[id]), errors[id], degraded[id], has_target ? (missed ? "**no**" : "yes") : "–"
    }
}
