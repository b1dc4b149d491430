#!/usr/bin/env bash
# Measures what tollgate costs in each mode, next to the gRPC stack alone, and writes benches/RESULTS.md.
# Needs redis-server, and two processors that have nothing else to do.
#
#   ROUNDS=5 SECONDS_EACH=4 benches/compare.sh
#
# What is compared is CPU time per decision of the server's process, as a ratio within one run: rates and latencies
# change with whatever else the machine does. All servers run all the time; rounds alternate between them.
set -euo pipefail
cd "$(dirname "$0")/.."

ROUNDS=${ROUNDS:-5}
SECONDS_EACH=${SECONDS_EACH:-4}
ECHO=18091 MEMORY=18092 REDIS=18093 REDIS_PORT=18094
RESULTS=benches/RESULTS.md

# Name, server, and what is asked of it. The first one is what the others are compared with.
ROWS=(
    "bare tonic, 1 key|echo|--descriptor client=0"
    "memory, 1 key|memory|--descriptor client=0"
    "memory, 100,000 keys|memory|--descriptor client={key} --keys 100000"
    "Redis strict, 1 key|redis|--descriptor client=0"
    "Redis strict, 100,000 keys|redis|--descriptor client={key} --keys 100000"
    "Redis strict, 3 descriptors of one tag, 100,000 keys|redis|--descriptor client={key} --descriptor client={key},path=orders --descriptor client={key},path=search --keys 100000"
    "denied, 1 key (Redis)|redis|--descriptor denied=0"
)

cargo build --release --locked
cargo build --release --locked --example echo
tollgate=target/release/tollgate
work=$(mktemp -d)
servers=()
stop() {
    kill "${servers[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap stop EXIT

# Starts a server and waits until it listens.
start() { # name port command...
    local name=$1 port=$2
    shift 2
    "$@" >"$work/$name.log" 2>&1 &
    servers+=($!)
    printf '%s' $! >"$work/$name.pid"
    for _ in $(seq 100); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then return; fi
        sleep 0.1
    done
    cat "$work/$name.log" >&2
    exit 1
}
serve() { # name port store
    start "$1" "$2" "$tollgate" --workers 1 --config benches/rules --store "$3" --store-timeout 1s \
        --grpc-address "127.0.0.1:$2" --http-address "127.0.0.1:$(($2 + 10))"
}
start redis-server $REDIS_PORT redis-server --port $REDIS_PORT --save '' --appendonly no --dir "$work"
start echo $ECHO target/release/examples/echo "127.0.0.1:$ECHO"
serve memory $MEMORY memory
serve redis $REDIS "redis://127.0.0.1:$REDIS_PORT"

# CPU time in microseconds: of a server, and of Redis.
cpu_of() {
    local stat
    stat=$(<"/proc/$(<"$work/$1.pid")/stat")
    awk -v ticks="$(getconf CLK_TCK)" '{ printf "%d", ($12 + $13) * 1000000 / ticks }' <<<"${stat##*) }"
}
cpu_of_redis() {
    redis-cli -p $REDIS_PORT info cpu | tr -d '\r' |
        awk -F: '$1 == "used_cpu_sys" || $1 == "used_cpu_user" { sum += $2 } END { printf "%d", sum * 1000000 }'
}
load() { # server seconds flags...
    local port
    case $1 in echo) port=$ECHO ;; memory) port=$MEMORY ;; redis) port=$REDIS ;; esac
    local seconds=$2
    shift 2
    "$tollgate" load --target "http://127.0.0.1:$port" --domain bench --connections 4 --streams 32 \
        --warmup 0 --duration "${seconds}s" --json "$@"
}
number() { grep -o "\"$1\":[0-9.]*" | head -1 | cut -d: -f2; }

for row in "${ROWS[@]}"; do
    IFS='|' read -r _ server flags <<<"$row"
    # shellcheck disable=SC2086 # The flags are words.
    load "$server" 2 $flags >/dev/null
done
for round in $(seq "$ROUNDS"); do
    for at in "${!ROWS[@]}"; do
        IFS='|' read -r name server flags <<<"${ROWS[$at]}"
        before=$(cpu_of "$server") redis_before=$(cpu_of_redis)
        # shellcheck disable=SC2086
        report=$(load "$server" "$SECONDS_EACH" $flags)
        after=$(cpu_of "$server") redis_after=$(cpu_of_redis)
        requests=$(number requests <<<"$report")
        answered=$(($(number ok <<<"$report") + $(number over_limit <<<"$report")))
        printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$at" "$requests" "$((after - before))" \
            "$((redis_after - redis_before))" "$(number rate <<<"$report")" "$(number p99 <<<"$report")" \
            "$((requests - answered))" >>"$work/figures"
        printf 'round %s of %s: %s: %s per second\n' "$round" "$ROUNDS" "$name" "$(number rate <<<"$report")" >&2
    done
done

names=$(printf '%s\n' "${ROWS[@]%%|*}")
table=$(NAMES="$names" awk -F'\t' '
    function median(list,   parts, count, i, j, swap) {
        count = split(list, parts, " ")
        for (i = 2; i <= count; i++)
            for (j = i; j > 1 && parts[j] + 0 < parts[j - 1] + 0; j--) {
                swap = parts[j]; parts[j] = parts[j - 1]; parts[j - 1] = swap
            }
        return count % 2 ? parts[(count + 1) / 2] : (parts[count / 2] + parts[count / 2 + 1]) / 2
    }
    {
        cost = $3 / $2
        if ($1 == 0) floor = cost
        service[$1] = service[$1] " " cost
        # Rounds are compared one by one, as the machine changes between them.
        ratio[$1] = ratio[$1] " " cost / floor
        redis[$1] = redis[$1] " " $4 / $2
        rate[$1] = rate[$1] " " $5
        p99[$1] = p99[$1] " " $6
        errors[$1] += $7
        rows = $1 + 1
    }
    END {
        split(ENVIRON["NAMES"], name, "\n")
        print "| workload | service CPU | ratio | Redis CPU | answers per second | p99 | errors |"
        print "|---|---|---|---|---|---|---|"
        for (at = 0; at < rows; at++)
            printf "| %s | %.2f µs | %.2f | %s | %d | %d µs | %d |\n", name[at + 1], median(service[at]),
                median(ratio[at]), name[at + 1] ~ /Redis/ ? sprintf("%.2f µs", median(redis[at])) : "–",
                median(rate[at]), median(p99[at]), errors[at]
    }' "$work/figures")
{
    printf '# Results\n\nWritten by `benches/compare.sh`. CPU time per decision and ratios to the first row; medians of'
    printf ' %s rounds of %s s,\n4 connections with 32 requests in flight each, limits far away unless denied,' \
        "$ROUNDS" "$SECONDS_EACH"
    printf ' one worker.\n\n%s\n\n' "$table"
    printf -- '- Machine: %s processors, %s; Linux %s.\n' "$(nproc)" \
        "$(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)" "$(uname -r)"
    printf -- '- Load of the machine at the end, of which about 2 is the measurement: %s.\n' \
        "$(cut -d' ' -f1-3 /proc/loadavg)"
    printf -- '- Built by %s at %s; %s.\n' "$(rustc --version)" "$(git describe --always --dirty)" \
        "$(redis-server --version | cut -d' ' -f1-3)"
} >"$RESULTS"
cat "$RESULTS"
