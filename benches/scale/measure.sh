# Measures a row. Sourced by benches/scale.sh.
# shellcheck shell=bash disable=SC2034,SC2153,SC2154 # Shared with benches/scale.sh.

# CPU times are in µs for each decision; `busy` is the used share of a role's processors, for Redis of its busiest shard's;
# 0 where the roles share all processors. Latencies are in µs: at capacity, and at 60 % of it.
COLUMNS_OF_ROWS=$(printf '%s\t' round series workload instances service_processors shards redis_processors \
    load_processors decisions rate service_us redis_us load_us service_busy redis_busy load_busy degraded errors p50 p99 \
    open_rate open_p50)open_p99

# A number of the report on stdin; 0 if it is missing.
number() { # name
    local found
    found=$(grep -o "\"$1\":[0-9.]*" | head -n 1)
    found=${found##*:}
    printf '%s' "${found:-0}"
}

# CPU time in microseconds of each process, since its start.
cpu_of() { # process...
    local process stat
    for process in "$@"; do
        stat=$(<"/proc/$process/stat")
        # User and system time follow the name, which may contain spaces.
        awk -v ticks="$(getconf CLK_TCK)" '{ printf "%d\n", ($12 + $13) * 1000000 / ticks }' <<<"${stat##*) }"
    done
}

# The sum of the differences of two lists of numbers, and the greatest.
differences() { # before after
    paste <(printf '%s\n' "$1") <(printf '%s\n' "$2") |
        awk '{ d = $2 - $1; sum += d; if (d > most) most = d } END { printf "%d %d", sum, most }'
}

# CPU time in microseconds of processes that ended between two outputs of `times`.
of_children() { # file
    awk 'NR % 2 == 0 {
        for (i = 1; i <= 2; i++) {
            split($i, part, "m")
            sum += (NR == 2 ? -1 : 1) * (part[1] * 60 + part[2])
        }
    } END { printf "%d", sum * 1000000 }' "$1"
}

# Descriptors that were decided in degraded mode, by all instances.
degraded() { # instances
    local at
    for ((at = 0; at < $1; at++)); do
        exec 3<>"/dev/tcp/127.0.0.1/$((port + 230 + at))"
        printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
        cat <&3
        exec 3<&-
    done | tr -d '\r' | awk '/^tollgate_degraded_total/ { sum += $NF } END { printf "%d", sum }'
}

# Puts load on the instances, and prints the report. Replaces its shell.
load() { # workload instances threads processors seconds flags...
    local at targets=() descriptor='client={key}' connections
    if [ "$1" = leased ]; then descriptor='leased={key}'; fi
    for ((at = 0; at < $2; at++)); do targets+=(--target "http://127.0.0.1:$((port + 200 + at))"); done
    # Enough for each worker and each thread to have several.
    connections=$((2 * (${#CPUS[@]} > 2 ? ${#CPUS[@]} : 2)))
    pinned "$4" "$load_generator" "${targets[@]}" --domain bench --descriptor "$descriptor" --keys 100000 \
        --connections "$connections" --streams 32 --threads "$3" --warmup 0 --duration "$5s" --json --quiet "${@:6}"
}

# Some of the processors, separated.
slice() { # start count separator
    local IFS=$3
    printf '%s' "${CPUS[*]:$1:$2}"
}

measure_row() { # round series workload instances service shards redis load
    local round=$1 series=$2 workload=$3 instances=$4 service=$5 shards=$6 redis=$7 load=$8
    local of_service='' of_redis='' of_load='' threads=1
    if [ "$load" -gt 0 ]; then
        of_service=$(slice 0 "$service" ' ')
        of_redis=$(slice "$service" "$redis" ' ')
        of_load=$(slice $((service + redis)) "$load" ,)
        threads=$load
    fi
    if [ "$shards" -gt 0 ]; then start_cluster "$shards" "$of_redis"; fi
    start_instances "$instances" "$service" "$of_service" "$shards"
    # Creates the counters.
    (load "$workload" "$instances" "$threads" "$of_load" "$WARM_UP_SECONDS") >/dev/null

    local before redis_before degraded_before begun wall report generator after redis_after
    before=$(cpu_of "${INSTANCES[@]}") redis_before=$(cpu_of "${NODES[@]}")
    degraded_before=$(degraded "$instances") begun=${EPOCHREALTIME/[.,]/}
    # The servers are not among the processes that ended meanwhile.
    times >"$work/times"
    (load "$workload" "$instances" "$threads" "$of_load" "$SECONDS_EACH") >"$work/report"
    times >>"$work/times"
    wall=$((${EPOCHREALTIME/[.,]/} - begun))
    after=$(cpu_of "${INSTANCES[@]}") redis_after=$(cpu_of "${NODES[@]}")
    generator=$(of_children "$work/times") report=$(<"$work/report")
    local degraded_now rate open
    degraded_now=$(degraded "$instances")
    rate=$(number rate <<<"$report")
    open=$(load_open "$workload" "$instances" "$threads" "$of_load" "$rate")
    stop_row

    awk -v OFS='\t' -v head="$round $series $workload $instances $service $shards $redis $load" -v wall="$wall" \
        -v cpu="$(differences "$before" "$after") $(differences "$redis_before" "$redis_after") $generator" \
        -v got="$(number ok <<<"$report") $(number over_limit <<<"$report") $(number requests <<<"$report") $rate" \
        -v degraded="$((degraded_now - degraded_before))" \
        -v latency="$(number p50 <<<"$report") $(number p99 <<<"$report") $open" 'BEGIN {
            split(head, h, " "); split(cpu, c, " "); split(got, g, " "); split(latency, l, " ")
            decisions = g[1] + g[2]
            each = decisions > 0 ? decisions : 1
            generator = c[5]
            busy = h[8] > 0 ? 1 / wall : 0
            share = h[8] > 0 ? generator * busy / h[8] : 0
            # Several shards on a processor share it.
            per = h[7] > 0 && h[7] < h[6] ? h[6] / h[7] : 1
            print h[1], h[2], h[3], h[4], h[5], h[6], h[7], h[8], decisions, g[4], c[1] / each, c[3] / each,
                generator / each, c[1] * busy / h[5], c[4] * per * busy, share,
                degraded / each, g[3] - decisions, l[1], l[2], l[3], l[4], l[5]
        }'
}

# An open loop at 60 % of a rate: prints its rate and latencies.
load_open() { # workload instances threads processors rate
    local report rate
    rate=$(awk -v rate="$5" 'BEGIN { printf "%d", rate * 0.6 + 1 }')
    report=$( (load "$1" "$2" "$3" "$4" "$SECONDS_EACH" --rate "$rate"))
    printf '%s %s %s' "$(number rate <<<"$report")" "$(number p50 <<<"$report")" "$(number p99 <<<"$report")"
}
