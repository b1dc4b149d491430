#!/bin/sh
# Training workload of the profile-guided optimization (docs/adr/0018): the load of usual deployments, with the memory store, one
# Redis and a Redis Cluster of one node. An instrumented program writes its profile when it ends, to the directory that
# it was built for. Each of 27 loads takes TRAIN_SECONDS, 2 by default. Needs redis-server 7 or later, redis-cli and curl.
#
# usage: train.sh PROGRAM LOAD_GENERATOR [REDIS_PORT CLUSTER_PORT GRPC_PORT HTTP_PORT]
set -eu

program=$1 generator=$2
rules=$(dirname "$0")/training
redis=${3:-21190} cluster=${4:-21191} grpc=${5:-21192} http=${6:-21193}
work=$(mktemp -d)
processes=
stop() {
    # shellcheck disable=SC2086 # Split into words.
    kill $processes 2>/dev/null || true
    wait
    rm -rf "$work"
}
trap stop EXIT
# A shell that a signal ends does not run the trap of its exit.
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
    echo "train.sh: $*" >&2
    exit 1
}

# Waits until a command of a process that was started succeeds.
wait_for() { # process command...
    process=$1
    shift
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        kill -0 "$process" 2>/dev/null || fail "the server ended; expected that \`$*\` succeeds (is its port free?)"
        [ $tries -le 200 ] || fail "\`$*\` still fails after 20 s"
        sleep 0.1
    done
}

# Starts a Redis, and waits until it answers on a socket that no other one can have.
start_redis() { # port flags...
    port=$1
    shift
    redis-server --port "$port" --bind 127.0.0.1 --unixsocket "$work/$port" --save '' --dir "$work" --loglevel warning "$@" >&2 &
    processes="$processes $!"
    wait_for $! redis-cli -s "$work/$port" ping
}

load() { # flags...
    "$generator" --target "http://127.0.0.1:$grpc" --domain training --duration "${TRAIN_SECONDS:-2}s" --warmup 0 --quiet "$@" \
        >/dev/null || fail "the load failed: $*"
}

# Serves with a store while loads run. No variable of the caller applies, and a slow machine degrades no decision.
train() { # store
    echo "train.sh: load with the store $1" >&2
    env -i PATH="$PATH" "$program" --config "$rules" --store "$1" --store-timeout 5s --grpc-address "127.0.0.1:$grpc" \
        --http-address "127.0.0.1:$http" --admin-address off >&2 &
    server=$!
    processes="$processes $server"
    wait_for $server curl -sf --noproxy '*' "http://127.0.0.1:$http/ready"
    for key in client bucket sliding; do load --descriptor "$key={key}" --keys 100000; done
    for key in leased auto; do load --descriptor "$key={key}" --keys 100000 --zipf 1.1; done
    load --descriptor 'tenant={key}' --descriptor 'tenant={key},path=/login' --descriptor 'tenant={key},path=/orders' \
        --keys 10000
    load --descriptor 'log={key}' --keys 10
    load --descriptor denied=0
    load --descriptor 'client={key}' --keys 100000 --rate 5000 --send-deadline
    curl -sf --noproxy '*' "http://127.0.0.1:$http/metrics" >"$work/metrics"
    awk -v store="$1" '
        /^tollgate_degraded_total/ { degraded += $NF }
        /^tollgate_redis_calls_total\{source="sent"\}/ { sent = $NF }
        /^tollgate_algorithm_hits_total/ { hits += $NF }
        END { exit !(hits > 0 && degraded * 100 <= hits && (store == "memory" || sent > 0)) }
    ' "$work/metrics" || fail "the rules or the store $1 had too small a part in the load"
    kill -TERM $server
    wait $server
}

start_redis "$redis"
start_redis "$cluster" --cluster-enabled yes --cluster-config-file nodes.conf
redis-cli -e -s "$work/$cluster" cluster addslotsrange 0 16383 >/dev/null
train memory
train "redis://127.0.0.1:$redis"
train "redis+cluster://127.0.0.1:$cluster"
