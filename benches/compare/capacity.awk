# The tables of docs/guides/capacity.md, from benches/RESULTS.md:
#
#   awk -f benches/compare/capacity.awk benches/RESULTS.md
BEGIN {
    FS = " *[|] *"
    # The share of a processor that is used at the peak. Above it, latency grows.
    SHARE = 0.6
    counts = split("100000 1700000 17000000", rate, " ")
}

# | workload | service CPU | of F | target | Redis CPU | …
$3 ~ /^[0-9.]+ µs$/ && $6 ~ /^([0-9.]+ µs|–)$/ {
    service[$2] = $3 + 0
    redis[$2] = $6 == "–" ? 0 : $6 + 0
}

# | store | live counters | bytes per counter | …
$2 ~ /^(memory|Redis)$/ { bytes[$2] = $4 }

function ceiling(number) { return number == int(number) ? number : int(number) + 1 }

function cores(micros, rate) { return ceiling(rate * micros / 1000000 / SHARE) }

# Processors of tollgate and masters of Redis for a number of decisions per second.
function size(row, rate,   shards) {
    shards = cores(redis[row], rate)
    if (row !~ /^Redis/) return cores(service[row], rate)
    # One Redis alone is one thread.
    if (shards > 1 && row !~ /cluster/) return "–"
    return cores(service[row], rate) " + " shards
}

function mode(row, at) {
    if (!(row in service)) missing_row(row)
    printf "| %s | %.2f µs | %s |", row, service[row], row ~ /^Redis/ ? sprintf("%.2f µs", redis[row]) : "–"
    for (at = 1; at <= counts; at++) printf " %s |", size(row, rate[at])
    print ""
}

# The factor between two rows; near zero a factor has no meaning.
function times(figures, from, to) {
    if (!(from in figures && to in figures)) missing_row(to)
    return figures[from] < 0.05 ? "–" : sprintf("%.2f ×", figures[to] / figures[from])
}

function growth(what, from, to) {
    printf "| %s | %s | %s |\n", what, times(service, from, to), times(redis, from, to)
}

function missing_row(row) {
    print "the results have no row “" row "” or lacks the row that it is compared with" >"/dev/stderr"
    exit 1
}

function gigabytes(store, counters) { return sprintf(" %.2f GB |", bytes[store] * counters / 1000000000) }

END {
    strict = "Redis strict, 100,000 keys"
    print "| mode | service CPU | Redis CPU | 100,000/s | 1.7 million/s | 17 million/s |"
    print "|---|---|---|---|---|---|"
    mode("memory, 100,000 keys")
    mode("Redis, denied, 1 key")
    mode("Redis leased, 1 key")
    mode("Redis strict, 1 key")
    mode("Redis leased, 100,000 keys by Zipf 1.1")
    mode(strict)
    mode("Redis cluster of 3, leased, 100,000 keys by Zipf 1.1")
    mode("Redis cluster of 3, strict, 100,000 keys")
    print ""
    print "| what grows | service CPU | Redis CPU |"
    print "|---|---|---|"
    growth("rules: 1 to 10,000, one matched, memory", "memory, 1 rule, 1 key", "memory, 10,000 rules, 1 key")
    growth("rules: 1 to 10,000, all matched equally, memory", "memory, 1 rule, 10,000 keys", "memory, 10,000 rules, one for each key")
    growth("rules: 1 to 10,000, one matched, Redis", "Redis strict, 1 rule, 1 key", "Redis strict, 10,000 rules, 1 key")
    growth("rules: 1 to 10,000, all matched equally, Redis", "Redis strict, 1 rule, 10,000 keys", "Redis strict, 10,000 rules, one for each key")
    growth("descriptors of one tag: 1 to 3", strict, "Redis strict, 3 descriptors of one tag, 100,000 keys")
    growth("keys: 1 to 100,000, memory", "memory, 1 key", "memory, 100,000 keys")
    growth("keys: 1 to 100,000, Redis", "Redis strict, 1 key", strict)
    growth("instances: 1 to 3", strict, "Redis strict, 100,000 keys, 3 instances")
    growth("shards: one Redis to a cluster of 1", strict, "Redis cluster of 1, strict, 100,000 keys")
    growth("shards: 1 to 3", "Redis cluster of 1, strict, 100,000 keys", "Redis cluster of 3, strict, 100,000 keys")
    growth("shards: 1 to 6", "Redis cluster of 1, strict, 100,000 keys", "Redis cluster of 6, strict, 100,000 keys")
    print ""
    print "| live counters, one for each client | memory store | Redis |"
    print "|---|---|---|"
    for (counters = 1000000; counters <= 100000000; counters *= 10)
        printf "| %d million |%s%s\n", counters / 1000000, gigabytes("memory", counters), gigabytes("Redis", counters)
}
