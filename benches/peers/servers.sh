# Starts each service with its defaults. Sourced by benches/peers.sh.
# shellcheck shell=bash disable=SC2154 # Set by benches/peers.sh.
PORTS+=(
    [tollgate]=18121 [tollgate-bucket]=18122 [tollgate-leased]=18123 [ratelimit]=18131 [ratelimit-tuned]=18132
    [limitador]=18141 [limitador-cached]=18142
)

# The servers whose binaries are there.
present_peers() {
    echo echo tollgate tollgate-bucket tollgate-leased
    if [ -n "${RATELIMIT:-}" ]; then echo ratelimit ratelimit-tuned; fi
    if [ -n "${LIMITADOR:-}" ]; then echo limitador limitador-cached; fi
}

title_of() { # server
    case $1 in
        echo) echo "bare tonic" ;;
        tollgate-bucket) echo "tollgate, token_bucket" ;;
        tollgate-leased) echo "tollgate, sync: leased" ;;
        ratelimit) echo "envoyproxy/ratelimit" ;;
        ratelimit-tuned) echo "envoyproxy/ratelimit, pipelined, local cache" ;;
        limitador) echo "Limitador, redis" ;;
        limitador-cached) echo "Limitador, redis_cached" ;;
        *) echo "$1" ;;
    esac
}
version_of() { # server
    case $1 in
        ratelimit*) echo "${RATELIMIT_VERSION:-unknown}" ;;
        limitador*) echo "${LIMITADOR_VERSION:-unknown}" ;;
        echo) echo "–" ;;
        *) "$tollgate" --version | cut -d' ' -f2 ;;
    esac
}

# The rules of each service: benches/peers/rules.yaml for envoyproxy/ratelimit and, unchanged or with one key more at each
# limit, for tollgate.
write_peer_rules() {
    mkdir -p "$work"/runtime/peers/config "$work"/peers-{plain,bucket,leased}
    cp benches/peers/rules.yaml "$work/runtime/peers/config/rules.yaml"
    cp benches/peers/rules.yaml "$work/peers-plain/rules.yaml"
    sed 's/rate_limit: {/&algorithm: token_bucket, /' benches/peers/rules.yaml >"$work/peers-bucket/rules.yaml"
    sed 's/rate_limit: {/&sync: leased, /' benches/peers/rules.yaml >"$work/peers-leased/rules.yaml"
}

start_peer() { # server
    local server=$1 port=${PORTS[$1]} http=$((PORTS[$1] + 100)) rules=plain
    case $server in
        echo) start echo "$port" "$floor" "127.0.0.1:$port" "$(nproc)" ;;
        tollgate*)
            if [ "$server" != tollgate ]; then rules=${server#tollgate-}; fi
            start "$server" "$port" "$tollgate" --config "$work/peers-$rules" --store "redis://127.0.0.1:$REDIS" \
                --grpc-address "127.0.0.1:$port" --http-address "127.0.0.1:$http" \
                --admin-address "127.0.0.1:$((http + 200))"
            ;;
        ratelimit*) start_ratelimit "$server" "$port" "$http" ;;
        limitador*)
            local storage=redis
            if [ "$server" = limitador-cached ]; then storage=redis_cached; fi
            start "$server" "$port" "$LIMITADOR" --rls-ip 127.0.0.1 --rls-port "$port" --http-ip 127.0.0.1 \
                --http-port "$http" benches/peers/limits.yaml $storage "redis://127.0.0.1:$REDIS"
            ;;
    esac
}

# Statsd is off, since no server receives it; it costs envoyproxy/ratelimit more than that.
start_ratelimit() { # server port http
    local options=(USE_STATSD=false)
    if [ "$1" = ratelimit-tuned ]; then
        options+=(REDIS_PIPELINE_WINDOW=150us REDIS_PIPELINE_LIMIT=8 LOCAL_CACHE_SIZE_IN_BYTES=10485760)
    fi
    start "$1" "$2" env "${options[@]}" HOST=127.0.0.1 PORT="$3" GRPC_HOST=127.0.0.1 GRPC_PORT="$2" \
        DEBUG_HOST=127.0.0.1 DEBUG_PORT="$(($3 + 200))" RUNTIME_ROOT="$work/runtime" RUNTIME_SUBDIRECTORY=peers \
        RUNTIME_APPDIRECTORY=config RUNTIME_WATCH_ROOT=false REDIS_SOCKET_TYPE=tcp REDIS_URL="127.0.0.1:$REDIS" \
        "$RATELIMIT"
}

# Stops a server, also one that does not end by itself.
stop_peer() { # server
    local pid=${PIDS[$1]}
    kill "$pid"
    for _ in $(seq 50); do
        if ! kill -0 "$pid" 2>/dev/null; then break; fi
        sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null && log "$1 did not end within 5 s"
    wait "$pid" 2>/dev/null || true
    unset "PIDS[$1]"
}
