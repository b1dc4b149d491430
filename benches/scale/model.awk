# Reads medians, and fits the model: the CPU time of a decision is a + b log2(shards) for tollgate and for Redis, by least
# squares over the rows of a workload; more shards mean fewer calls in a batch. Capacity is what the first role that is
# full allows:
#   min(service processors / service time, Redis processors / Redis time, load processors / load time),
# or, where the roles share all processors, processors / (sum of the times).
BEGIN { FS = "\t" }

NR > 1 {
    row = ++rows
    series[row] = $1; workload[row] = $2; instances[row] = $3; service[row] = $4; shards[row] = $5
    redis[row] = $6; load[row] = $7; rate[row] = $9; service_us[row] = $10; redis_us[row] = $11; load_us[row] = $12
    service_busy[row] = $13; redis_busy[row] = $14; load_busy[row] = $15; degraded[row] = $16; errors[row] = $17
    p99[row] = $19; open_rate[row] = $20; open_p50[row] = $21; open_p99[row] = $22
    x = $5 > 1 ? log($5) / log(2) : 0
    count[$2]++
    sum_x[$2] += x
    sum_xx[$2] += x * x
    fit_add("service", $2, x, $10)
    fit_add("redis", $2, x, $11)
    fit_add("load", $2, x, $12)
}

function fit_add(role, kind, x, y) {
    sum_y[role, kind] += y
    sum_xy[role, kind] += x * y
}

# The increase for each doubling of the shards, and the time with one.
function slope(role, kind,   n, d) {
    n = count[kind]
    d = n * sum_xx[kind] - sum_x[kind] * sum_x[kind]
    return d > 1e-9 ? (n * sum_xy[role, kind] - sum_x[kind] * sum_y[role, kind]) / d : 0
}
function base(role, kind) {
    return (sum_y[role, kind] - slope(role, kind) * sum_x[kind]) / count[kind]
}

# Modelled CPU time of a decision.
function cost(role, kind, shards) {
    return base(role, kind) + slope(role, kind) * (shards > 1 ? log(shards) / log(2) : 0)
}

# Modelled capacity of a division of processors; the role that is full first in `full`.
function capacity(kind, service, shards, redis, load,   best, other) {
    if (load == 0) {
        full = "all"
        return service * 1e6 / (cost("service", kind, shards) + cost("redis", kind, shards) + cost("load", kind, shards))
    }
    full = "service"
    best = service * 1e6 / cost("service", kind, shards)
    if (shards > 0) {
        other = (redis < shards ? redis : shards) * 1e6 / cost("redis", kind, shards)
        if (other < best) { best = other; full = "Redis" }
    }
    other = load * 1e6 / cost("load", kind, shards)
    if (other < best) { best = other; full = "load generator" }
    return best
}
