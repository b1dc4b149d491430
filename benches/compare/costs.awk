# The table of costs, from the rows and the measurements of each round.
BEGIN {
    # Idle CPU of Redis, in µs for each of the requests that do not call it.
    STANDBY = 0.02
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
}

# The factor to another row. Rounds are compared one by one, since the machine changes between them.
function times(figures, id, base,   round, list) {
    for (round = 1; round <= rounds; round++)
        if (figures[base, round]) list = list " " figures[id, round] / figures[base, round]
    return median(list)
}

# The text of a target, and whether it is missed, in `missed`.
function judged(target, figures, id, absolute,   part, value) {
    if (target == "") return "–"
    split(target, part, " ")
    value = part[2] ? times(figures, id, part[2]) : absolute
    if (value > part[1] + (part[1] == 0 ? STANDBY : 0)) missed = 1
    if (part[2] == "floor") return "≤ " part[1] " F"
    if (part[2]) return sprintf("%.2f, ≤ %s × “%s”", value, part[1], name[part[2]])
    return "≤ " part[1] " µs"
}

END {
    print "| workload | service CPU | of F | target | Redis CPU | target | responses per second | p99 | errors | met |"
    print "|---|---|---|---|---|---|---|---|---|---|"
    for (at = 1; at <= rows; at++) {
        id = order[at]
        missed = errors[id] > 0
        of_service = judged(service_target[id], service, id)
        of_redis = judged(redis_target[id], redis, id, median(redises[id]))
        has_target = service_target[id] redis_target[id] != ""
        printf "| %s | %.2f µs | %.2f | %s | %s | %s | %d | %d µs | %d | %s |\n", name[id], median(services[id]),
            times(service, id, "floor"), of_service,
            has_redis[id] ? sprintf("%.2f µs", median(redises[id])) : "–", of_redis, median(rates[id]),
            median(p99s[id]), errors[id], has_target ? (missed ? "**no**" : "yes") : "–"
    }
}
