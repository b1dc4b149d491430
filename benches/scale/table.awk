# The tables of rows and of the model, after model.awk.
BEGIN {
    # The share of its processors above which the load generator limits a row.
    LOAD_LIMIT = 0.8
    # The share above which a role is full, with room for what a short measurement misses.
    FULL = 0.85
    # The seeds: an established service of the same kind.
    SEED_SHARDS = 6
    SEED_RATE = 1.7e6
    SEED_SHARD = 300000
}

function thousands(number,   text, out) {
    text = sprintf("%d", number)
    while (length(text) > 3) {
        out = "," substr(text, length(text) - 2) out
        text = substr(text, 1, length(text) - 3)
    }
    return text out
}

# The first row of a series, which the others are compared with.
function first_of(row,   other) {
    for (other = 1; other < row; other++) if (series[other] == series[row]) return other
    return row
}

function busy(share) { return share > 0 ? sprintf("%d %%", share * 100 + 0.5) : "–" }

function mark(row) {
    if (errors[row] > 0) return thousands(errors[row]) " errors"
    if (load[row] == 0) return "shared"
    if (load_busy[row] >= LOAD_LIMIT) return "at least"
    return service_busy[row] < FULL && redis_busy[row] < FULL ? "nothing full" : ""
}

END {
    print "| series | workload | instances | tollgate | shards | load | decisions per second | service | Redis | CPU of the first row's | busy: tollgate, busiest shard, load | degraded | at 60 %: p50, p99 | |"
    print "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for (row = 1; row <= rows; row++) {
        base_row = first_of(row)
        printf("| %s | %s | %d | %d | %s | %s | %s | %.2f µs | %s | %.2f × | %s, %s, %s | %.2f %% | %d, %d µs | %s |\n", \
            series[row], workload[row], instances[row], service[row], \
            shards[row] > 0 ? shards[row] (redis[row] > 0 && redis[row] < shards[row] ? " on " redis[row] : "") : "–", \
            load[row] > 0 ? load[row] : "–", thousands(rate[row]), service_us[row], \
            shards[row] > 0 ? sprintf("%.2f µs", redis_us[row]) : "–", \
            (service_us[row] + redis_us[row]) / (service_us[base_row] + redis_us[base_row]), \
            busy(service_busy[row]), busy(redis_busy[row]), busy(load_busy[row]), degraded[row] * 100, \
            open_p50[row], open_p99[row], mark(row))
    }
    print "\nColumns of processors: “tollgate” over all instances, one for each shard, “load” for the load generator. “shared”:"
    print "all roles used all processors, so the rate includes the work of the load generator. “at least”: the load generator"
    print "used 80 % of its processors or more. “nothing full”: neither tollgate nor a shard used 85 %, so that other load of the"
    print "machine or too few requests in flight limited the row. “busy” is the used share of a role's processors."

    print "\n## Model\n"
    print "| workload | service CPU per decision | Redis CPU per decision |"
    print "|---|---|---|"
    for (row = 1; row <= rows; row++) {
        kind = workload[row]
        if (kind in printed) continue
        printed[kind] = 1
        printf("| %s | %.2f + %.2f log2(shards) µs | %s |\n", kind, base("service", kind), slope("service", kind), \
            shards[row] > 0 ? sprintf("%.2f + %.2f log2(shards) µs", base("redis", kind), slope("redis", kind)) : "–")
    }
    print "\nCapacity is the least of the roles' processors / CPU time per decision; of shared processors, all of them / the sum.\n"
    print "| series | workload | instances | tollgate | shards | full first | predicted | measured | of it |"
    print "|---|---|---|---|---|---|---|---|---|"
    for (row = 1; row <= rows; row++) {
        predicted = capacity(workload[row], service[row], shards[row], redis[row], load[row])
        printf("| %s | %s | %d | %d | %s | %s | %s | %s | %.2f |\n", series[row], workload[row], instances[row], \
            service[row], shards[row] > 0 ? shards[row] : "–", full, thousands(predicted), thousands(rate[row]), \
            rate[row] / predicted)
    }
    if ("strict" in count) {
        shard = 1e6 / cost("redis", "strict", SEED_SHARDS)
        print "\n## Sizing\n"
        printf "By the model, strict decisions on %d shards take %.2f µs of tollgate and %.2f µs of Redis, so that a shard, which is\n", \
            SEED_SHARDS, cost("service", "strict", SEED_SHARDS), cost("redis", "strict", SEED_SHARDS)
        printf "one processor, decides %s per second, %d shards %s, and %s per second take %.1f shards and %.1f processors\n", \
            thousands(shard), SEED_SHARDS, thousands(SEED_SHARDS * shard), thousands(SEED_RATE), \
            SEED_RATE / shard, SEED_RATE * cost("service", "strict", SEED_SHARDS) / 1e6
        printf "of tollgate, all full. Published for comparison: %s operations of Redis per second and shard, %d shards for %s\n", \
            thousands(SEED_SHARD), SEED_SHARDS, thousands(SEED_RATE)
        print "checks per second, p99 below 1 ms."
    }
}
