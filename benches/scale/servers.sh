# Starts and stops the processes of a row. Sourced by benches/scale.sh.
# shellcheck shell=bash disable=SC2154 # Set by benches/scale.sh.
INSTANCES=() NODES=()

log() { printf '%s\n' "$*" >&2; }

stop_all() {
    stop_row
    rm -rf "$work"
}
stop_row() {
    local process
    for process in "${INSTANCES[@]}" "${NODES[@]}"; do kill -KILL "$process" 2>/dev/null || true; done
    wait 2>/dev/null || true
    INSTANCES=() NODES=()
}

# Replaces this shell by a command that is pinned to processors, if any are given and taskset is installed.
pinned() { # processors command...
    local cpus=$1
    shift
    if [ -n "$cpus" ] && command -v taskset >/dev/null; then exec taskset -c "$cpus" "$@"; fi
    exec "$@"
}

# Waits until a port is listened on by a process that runs.
await_port() { # name process port
    local _
    for _ in $(seq 300); do
        if ! kill -0 "$2" 2>/dev/null; then break; fi
        if (exec 3<>"/dev/tcp/127.0.0.1/$3") 2>/dev/null; then return; fi
        sleep 0.1
    done
    log "$1 does not listen at port $3:"
    cat "$work/$1.log" >&2
    exit 1
}

cli() { # node words...
    "$redis_cli" -p $((port + $1)) "${@:2}"
}

# Starts masters without replicas, with equal shares of the slots, as a cluster.
start_cluster() { # shards processors
    local at cpus
    IFS=' ' read -ra cpus <<<"$2"
    for ((at = 0; at < $1; at++)); do
        mkdir -p "$work/node-$at"
        rm -f "$work/node-$at/nodes.conf"
        # shellcheck disable=SC2094 # Different files.
        pinned "${cpus[at % (${#cpus[@]} > 0 ? ${#cpus[@]} : 1)]:-}" "$redis_server" --port $((port + at)) \
            --bind 127.0.0.1 --save '' --appendonly no --dir "$work/node-$at" --cluster-enabled yes \
            --cluster-config-file nodes.conf >"$work/node-$at.log" 2>&1 &
        NODES+=($!)
        await_port "node-$at" $! $((port + at))
    done
    for ((at = 0; at < $1; at++)); do
        cli "$at" cluster addslotsrange $((16384 * at / $1)) $((16384 * (at + 1) / $1 - 1)) >/dev/null
        cli "$at" cluster set-config-epoch $((at + 1)) >/dev/null
        cli "$at" cluster meet 127.0.0.1 "$port" >/dev/null
    done
    for ((at = 0; at < $1; at++)); do
        until [ "$(cli "$at" cluster slots | grep -cFx 127.0.0.1)" = "$1" ] &&
            cli "$at" cluster info | grep -q cluster_state:ok; do sleep 0.1; done
    done
}

# The rules of all workloads. The limits are out of reach.
write_rules() {
    mkdir -p "$work/rules"
    cat >"$work/rules/rules.yaml" <<RULES
domain: bench
descriptors:
- {key: client, rate_limit: {unit: hour, requests_per_unit: 4000000000}}
- {key: leased, rate_limit: {unit: hour, requests_per_unit: 4000000000, sync: leased}}
RULES
    # The program waits for files that were written just now.
    touch -t 200001010000 "$work/rules/rules.yaml"
}

# Starts instances that divide processors; their workers are as many as the processors of each.
start_instances() { # instances processors-count processors shards
    local at cpus own store=memory count
    IFS=' ' read -ra cpus <<<"$3"
    if [ "$4" -gt 0 ]; then store=redis+cluster://127.0.0.1:$port; fi
    for ((at = 0; at < $1; at++)); do
        count=$(($2 * (at + 1) / $1 - $2 * at / $1))
        own=$(IFS=, && echo "${cpus[*]:$2 * at / $1:count}")
        pinned "$own" "$tollgate" serve --workers $((count > 0 ? count : 1)) --config "$work/rules" --store "$store" \
            --grpc-address "127.0.0.1:$((port + 200 + at))" --http-address "127.0.0.1:$((port + 230 + at))" \
            --admin-address off >"$work/instance-$at.log" 2>&1 &
        INSTANCES+=($!)
        await_port "instance-$at" $! $((port + 200 + at))
    done
}
