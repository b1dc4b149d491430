# Starts servers when they are needed and stops them at the end. Sourced by benches/compare.sh.
# shellcheck shell=bash disable=SC2154 # Set by benches/compare.sh.
declare -A PORTS=(
    [echo]=18091 [memory]=18092 [redis]=18093 [redis-b]=18094 [redis-c]=18095 [memory-1-rule]=18096
    [memory-10k-rules]=18097 [redis-1-rule]=18098 [redis-10k-rules]=18099 [cluster-1]=18101 [cluster-3]=18103
    [cluster-6]=18106 [memory-no-talkers]=18107 [pairs-3]=18108 [pairs-3-b]=18109 [pairs-3-c]=18110
    [memory-release]=18111 [redis-release]=18112
)
# The ports of the Redis processes behind a server, and the process ids of the running servers.
REDIS=18300 NODES=(18301 18302 18303 18304 18305 18306)
declare -A PIDS=()

stop_all() {
    if [ ${#PIDS[@]} -gt 0 ]; then kill "${PIDS[@]}" 2>/dev/null || true; fi
    wait 2>/dev/null || true
    rm -rf "$work"
}

# Starts a process and waits until it listens.
start() { # name port command...
    local name=$1 port=$2
    shift 2
    "$@" >"$work/$name.log" 2>&1 &
    PIDS[$name]=$!
    for _ in $(seq 100); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then return; fi
        sleep 0.1
    done
    cat "$work/$name.log" >&2
    exit 1
}
stop() { # name...
    local name
    for name in "$@"; do
        kill "${PIDS[$name]}"
        wait "${PIDS[$name]}" 2>/dev/null || true
        unset "PIDS[$name]"
    done
}
redis_server() { # port flags...
    mkdir -p "$work/redis-$1"
    start "redis:$1" "$1" redis-server --port "$1" --save '' --appendonly no --dir "$work/redis-$1" "${@:2}"
}

# The ports of the Redis processes behind a server.
redis_of() { # server
    case $1 in
        cluster-*) echo "${NODES[@]:0:${1#cluster-}}" ;;
        pairs-*) echo "${NODES[@]}" ;;
        redis*) echo $REDIS ;;
    esac
}

# Starts a server and its dependencies. Clusters run only during their rows: their nodes exchange messages all the time.
ensure_running() { # server
    # Measured before each row, of a cluster too.
    if [[ $1 = echo && -n ${PIDS[echo]:-} ]]; then return; fi
    if [[ $1 != cluster-* && $1 != pairs-* || $1 =~ -[0-9]$ && -z ${PIDS[$1]:-} ]]; then stop_clusters; fi
    if [ -n "${PIDS[$1]:-}" ]; then return; fi
    local program=$tollgate config=$work/rules store=memory talkers=true
    case $1 in
        *-release) program=$release ;;
        *-no-talkers) talkers=false ;;
        *-1-rule) config=$work/1-rule && write_rules "$config" ;;
        *-10k-rules) config=$work/10k-rules && write_rules "$config" $(seq 0 9999) ;;
    esac
    case $1 in
        echo) start echo "${PORTS[echo]}" "$floor" "127.0.0.1:${PORTS[echo]}" "$(nproc)" && return ;;
        redis*)
            if [ -z "${PIDS[redis:$REDIS]:-}" ]; then redis_server $REDIS; fi
            store=redis://127.0.0.1:$REDIS
            ;;
        cluster-*)
            start_cluster "${1#cluster-}"
            store=redis+cluster://127.0.0.1:${NODES[0]}
            ;;
        pairs-*)
            if [ -z "${PIDS[redis:${NODES[0]}]:-}" ]; then start_cluster 3 && add_replicas 3; fi
            store=redis+cluster://127.0.0.1:${NODES[0]}
            ;;
    esac
    # All else as it starts by default: the workers, the timeouts, the policies.
    start "$1" "${PORTS[$1]}" "$program" --config "$config" --store "$store" --top-talkers=$talkers \
        --grpc-address "127.0.0.1:${PORTS[$1]}" --http-address "127.0.0.1:$((PORTS[$1] + 100))" \
        --admin-address "127.0.0.1:$((PORTS[$1] + 300))"
}

# The rules, without those that a binary of an earlier version cannot read.
copy_rules() {
    cp -r benches/rules "$work/rules"
    if ! "$tollgate" check "$work/rules" >/dev/null 2>&1; then
        rm "$work/rules/auto.yaml"
        log "$tollgate has no sync: auto; its rows are left out"
    fi
    "$tollgate" check "$work/rules" >/dev/null
}

# One rule for all paths, or one for each given path.
write_rules() { # directory number...
    mkdir -p "$1"
    local limit='rate_limit: {unit: hour, requests_per_unit: 4000000000}'
    {
        printf 'domain: bench\ndescriptors:\n'
        if [ $# -eq 1 ]; then printf -- '- {key: path, %s}\n' "$limit"; fi
        for number in "${@:2}"; do printf -- '- {key: path, value: /v1/%s, %s}\n' "$number" "$limit"; done
    } >"$1/rules.yaml"
}

# Masters alone, with equal shares of the slots.
start_cluster() { # count
    local at first last
    for ((at = 0; at < $1; at++)); do
        redis_server "${NODES[at]}" --cluster-enabled yes --cluster-config-file nodes.conf
        first=$((16384 * at / $1)) last=$((16384 * (at + 1) / $1 - 1))
        redis-cli -p "${NODES[at]}" cluster addslotsrange "$first" "$last" >/dev/null
        redis-cli -p "${NODES[at]}" cluster set-config-epoch $((at + 1)) >/dev/null
        redis-cli -p "${NODES[at]}" cluster meet 127.0.0.1 "${NODES[0]}" >/dev/null
    done
    for ((at = 0; at < $1; at++)); do
        until [ "$(redis-cli -p "${NODES[at]}" cluster slots | grep -cFx 127.0.0.1)" = "$1" ]; do sleep 0.1; done
        until redis-cli -p "${NODES[at]}" cluster info | grep -q cluster_state:ok; do sleep 0.1; done
    done
}
# A replica of each master.
add_replicas() { # count
    local at id
    for ((at = 0; at < $1; at++)); do
        redis_server "${NODES[at + $1]}" --cluster-enabled yes --cluster-config-file nodes.conf
        redis-cli -p "${NODES[at + $1]}" cluster meet 127.0.0.1 "${NODES[at]}" >/dev/null
        id=$(redis-cli -p "${NODES[at]}" cluster myid)
        until redis-cli -p "${NODES[at + $1]}" cluster replicate "$id" 2>/dev/null | grep -q OK; do sleep 0.1; done
        until redis-cli -p "${NODES[at + $1]}" info replication | grep -q master_link_status:up; do sleep 0.1; done
    done
    for ((at = 0; at < $1; at++)); do
        until redis-cli -p "${NODES[at]}" cluster info | grep -q "cluster_known_nodes:$((2 * $1))"; do sleep 0.1; done
    done
}
stop_clusters() {
    local name
    for name in "${!PIDS[@]}"; do
        case $name in
            cluster-* | pairs-*) stop "$name" ;;
        esac
    done
    for name in "${NODES[@]}"; do
        if [ -n "${PIDS[redis:$name]:-}" ]; then
            stop "redis:$name"
            rm -rf "$work/redis-$name"
        fi
    done
}
