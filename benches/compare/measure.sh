# Puts load on servers and measures its cost. Sourced by benches/compare.sh.
# shellcheck shell=bash disable=SC2154

# Puts load on servers, which share the connections, and prints the report as one object.
load() { # servers seconds flags...
    local servers=$1 seconds=$2 server targets=()
    shift 2
    for server in $servers; do targets+=(--target "http://127.0.0.1:${PORTS[$server]}"); done
    "$load_generator" "${targets[@]}" --domain bench --warmup 0 --duration "${seconds}s" --json "$@"
}

# A number of the report on stdin; 0 if it is missing.
number() { # name
    local found
    found=$(grep -o "\"$1\":[0-9.]*" | head -1)
    found=${found##*:}
    printf '%s' "${found:-0}"
}

# CPU time in microseconds since the start: of servers, and of the Redis behind them.
cpu_of() { # server...
    local server sum=0 stat ticks
    ticks=$(getconf CLK_TCK)
    for server in "$@"; do
        stat=$(<"/proc/${PIDS[$server]}/stat")
        # User and system time follow the name, which may contain spaces.
        stat=$(awk -v ticks="$ticks" '{ printf "%d", ($12 + $13) * 1000000 / ticks }' <<<"${stat##*) }")
        sum=$((sum + stat))
    done
    printf '%s' $sum
}
cpu_of_redis() { # port...
    local port
    for port in "$@"; do redis-cli -p "$port" info cpu; done | tr -d '\r' |
        awk -F: '$1 == "used_cpu_sys" || $1 == "used_cpu_user" { sum += $2 } END { printf "%d", sum * 1000000 }'
}

# Descriptors that tollgate decided without Redis since the start: of servers.
degraded_of() { # server...
    local server port
    for server in "$@"; do
        port=${PORTS[$server]}
        if [ "$server" != echo ]; then curl -sf "http://127.0.0.1:$((port + 100))/metrics"; fi
    done | awk '/^tollgate_degraded_total/ { sum += $NF } END { printf "%d", sum }'
}

# Measures one load, and prints: requests, CPU of the service and of Redis, rate, p99, errors, degraded decisions.
measure() { # servers flags...
    local servers=$1 before redis_before after redis_after degraded redis report requests answered
    shift
    for server in $servers; do ensure_running "$server"; done
    redis=$(redis_of "${servers%% *}")
    # shellcheck disable=SC2086 # Split into words.
    {
        degraded=$(degraded_of $servers)
        before=$(cpu_of $servers) redis_before=$(cpu_of_redis $redis)
        report=$(load "$servers" "$SECONDS_EACH" "$@")
        after=$(cpu_of $servers) redis_after=$(cpu_of_redis $redis)
        degraded=$(($(degraded_of $servers) - degraded))
    }
    requests=$(number requests <<<"$report")
    answered=$(($(number ok <<<"$report") + $(number over_limit <<<"$report")))
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$requests" "$((after - before))" "$((redis_after - redis_before))" \
        "$(number rate <<<"$report")" "$(number p99 <<<"$report")" "$((requests - answered))" "$degraded"
}

log() { printf '%s\n' "$*" >&2; }
