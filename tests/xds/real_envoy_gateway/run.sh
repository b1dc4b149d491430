#!/usr/bin/env bash
# Runs a real Envoy Gateway, the Envoy that it starts, and tollgate with the overlay of docs/guides/rules-overlay.md: a limit of a
# million an hour becomes a bucket of 100 in five minutes, also after 20 pushes. Needs root for a private /etc/hosts, Go or an
# envoy-gateway binary, Redis, and target/envoy/bin/envoy of tests/run.sh.
#   tests/xds/real_envoy_gateway/run.sh [ENVOY_GATEWAY [TOLLGATE]]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
project=$(cd "$here/../../.." && pwd)
version=v1.9.1
envoy_version=${ENVOY_VERSION:-1.40.0}

if [ -z "${PRIVATE_HOSTS:-}" ]; then
    gateway=${1:-}
    if [ -z "$gateway" ]; then
        gateway=$project/target/tools/envoy-gateway-$version
        [ -x "$gateway" ] || {
            GOBIN=$project/target/tools go install "github.com/envoyproxy/gateway/cmd/envoy-gateway@$version"
            mv "$project/target/tools/envoy-gateway" "$gateway"
        }
    fi
    export PRIVATE_HOSTS=1
    exec unshare --mount "$0" "$gateway" "${2:-$project/target/debug/tollgate}"
fi

gateway=$1 tollgate=$2
directory=$(mktemp -d)
started=()
made=
stop() {
    for process in "${started[@]}"; do kill "$process" 2>/dev/null || true; done
    wait 2>/dev/null || true
    [ -z "$made" ] || { umount /certs && rmdir /certs; } 2>/dev/null || true
}
trap stop EXIT
echo "logs in $directory"

# The Envoys find the rate limit service by its name in Kubernetes.
sed 's/^127.0.0.1.*/& envoy-ratelimit.envoy-gateway-system.svc.cluster.local envoy-gateway/' /etc/hosts >"$directory/hosts"
grep -q envoy-ratelimit "$directory/hosts" ||
    echo "127.0.0.1 envoy-ratelimit.envoy-gateway-system.svc.cluster.local envoy-gateway" >>"$directory/hosts"
mount --bind "$directory/hosts" /etc/hosts
# And their certificates where the Secret is mounted there.
[ -d /certs ] || { mkdir /certs && made=1; }

mkdir -p "$directory"/{resources,overlay,config,run,state} "$directory/data/envoy-versions/$envoy_version/bin"
ln -s "$(readlink -f "$project/target/envoy/bin/envoy")" "$directory/data/envoy-versions/$envoy_version/bin/envoy"
sed "s#DIRECTORY#$directory#g" "$here/envoy-gateway.yaml" >"$directory/envoy-gateway.yaml"
cp "$here/resources.yaml" "$directory/resources/"
awk '/^```yaml overlay$/{on=1;next} /^```$/{on=0} on' "$project/docs/guides/rules-overlay.md" >"$directory/overlay/limits.yaml"

redis-server --port 18379 --save '' --appendonly no >"$directory/redis.log" &
started+=($!)
(cd "$directory" && exec python3 -m http.server 18890 --bind 127.0.0.1) >"$directory/backend.log" 2>&1 &
started+=($!)
"$gateway" certgen --local --config-home "$directory/config" >"$directory/certgen.log" 2>&1
mount --bind "$directory/config/certs/envoy" /certs
certificates=$directory/config/certs/envoy-rate-limit
until_ready() { # what, command...
    local what=$1
    shift
    for _ in $(seq 600); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.2
    done
    echo "in vain: $what; see $directory" >&2
    exit 1
}
(
    while read -r line; do
        case $line in '' | '#'*) ;; *) export "${line//\/certs/$certificates}" ;; esac
    done < <(grep -v -e '^GRPC_SERVER_TLS_CA_CERT' "$project/tests/xds/envoy-gateway.env")
    export REDIS_URL=127.0.0.1:18379 GRPC_PORT=8081 PORT=18891 DEBUG_PORT=18892 PROMETHEUS_ADDR=:18893
    export TOLLGATE_RULES_OVERLAY=$directory/overlay
    cd "$directory"
    exec -a ratelimit "$tollgate"
) >"$directory/tollgate.log" 2>&1 &
started+=($!)

# Envoy Gateway has a health probe on the same port, and does without it.
until_ready "tollgate" bash -c '</dev/tcp/127.0.0.1/8081'
"$gateway" server --config-path "$directory/envoy-gateway.yaml" >"$directory/envoy-gateway.log" 2>&1 &
started+=($!)

status() { curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:18888/"; }
answers() { [ "$(status)" = 200 ]; }
has_bucket() { curl -s -o /dev/null -D - http://127.0.0.1:18888/ | grep -qi '^x-ratelimit-limit: 100, 100;w=300'; }
until_ready "a route through Envoy" answers
until_ready "the bucket of the overlay" has_bucket
passed=0
while code=$(status) && [ "$code" != 429 ]; do
    passed=$((passed + 1))
    [ "$passed" -lt 400 ] || { echo "$passed requests passed" >&2; exit 1; }
done
echo "$passed more requests passed, then one was denied"
for push in $(seq 20); do
    sed "s/requests: 1000000/requests: $((1000000 + push))/" "$here/resources.yaml" >"$directory/next.yaml"
    mv "$directory/next.yaml" "$directory/resources/resources.yaml"
    sleep 1
    # Envoy does without a decision after 20 ms, which a busy machine exceeds.
    until_ready "the bucket after push $push" has_bucket
done
loads=$(curl -s http://127.0.0.1:18892/metrics | grep '^tollgate_config_loads_total' || true)
curl -s http://127.0.0.1:18892/rlconfig
echo "$loads"
echo "the bucket of the overlay is enforced through a real Envoy Gateway $version and Envoy $envoy_version"
