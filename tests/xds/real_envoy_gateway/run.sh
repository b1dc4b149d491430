#!/usr/bin/env bash
# Runs a real Envoy Gateway, the Envoy that it starts, and tollgate in place of its rate-limit service, and checks:
#
# - BackendTrafficPolicies are enforced to the request, also after edits, each of which is active within 2 s;
# - Envoy Gateway and tollgate are restarted, and neither limits nor counts are lost;
# - deploy/envoy-gateway/policy.yaml limits clients with IPv4 and with IPv6, deploy/envoy-gateway/overlay.yaml makes its limits
#   buckets, and the overlay of docs/guides/rules-overlay.md makes a limit a bucket of 100 in five minutes, also after 20 pushes;
# - tollgate logs no warning at the start or at a push.
#
# All ports are of a private network. Needs root, Go or an envoy-gateway binary, Redis, ip, curl, python3, and
# target/envoy/bin/envoy of tests/run.sh. The logs stay in the directory that is printed first.
#   tests/xds/real_envoy_gateway/run.sh [ENVOY_GATEWAY [TOLLGATE]]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
project=$(cd "$here/../../.." && pwd)
version=v1.9.1
envoy_version=${ENVOY_VERSION:-1.40.0}
# Maximum time from the change of a file to the change of the limit, as a median in milliseconds.
max_edit=${MAX_EDIT_MILLIS:-2000}

if [ -z "${PRIVATE_HOSTS:-}" ]; then
    gateway=${1:-}
    if [ -z "$gateway" ]; then
        gateway=$project/target/tools/envoy-gateway-$version
        [ -x "$gateway" ] || {
            GOBIN=$project/target/tools go install "github.com/envoyproxy/gateway/cmd/envoy-gateway@$version"
            mv "$project/target/tools/envoy-gateway" "$gateway"
        }
    fi
    PRIVATE_HOSTS=$(mktemp -d)
    export PRIVATE_HOSTS
    echo "logs in $PRIVATE_HOSTS"
    unshare --mount --net "$0" "$gateway" "${2:-$project/target/debug/tollgate}" 2>&1 | tee "$PRIVATE_HOSTS/run.log"
    exit "${PIPESTATUS[0]}"
fi

gateway=$1 tollgate=$2 directory=$PRIVATE_HOSTS
ip link set lo up
declare -A process
made=
stop_all() {
    kill "${process[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    { umount /certs && [ -n "$made" ] && rmdir /certs; } 2>/dev/null || true
}
trap stop_all EXIT
fail() {
    echo "FAILED: $*; see $directory" >&2
    exit 1
}
until_so() { # what, command...
    local what=$1
    shift
    for _ in $(seq 1200); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    fail "in vain: $what"
}
expect() { # what, expected, found
    [ "$2" = "$3" ] || fail "$1: expected $2, found $3"
    echo "$1: $3"
}

# The Envoys find the rate limit service by its name in Kubernetes.
names="envoy-ratelimit.envoy-gateway-system.svc.cluster.local envoy-gateway"
{ cat /etc/hosts && echo "127.0.0.1 $names"; } >"$directory/hosts"
mount --bind "$directory/hosts" /etc/hosts
# And their certificates where the Secret is mounted there.
[ -d /certs ] || { mkdir /certs && made=1; }

mkdir -p "$directory"/{resources,overlay,config,run,state} "$directory/data/envoy-versions/$envoy_version/bin"
ln -s "$(readlink -f "$project/target/envoy/bin/envoy")" "$directory/data/envoy-versions/$envoy_version/bin/envoy"
sed "s#DIRECTORY#$directory#g" "$here/envoy-gateway.yaml" >"$directory/envoy-gateway.yaml"
cp "$here/resources.yaml" "$directory/resources/"

redis-server --port 18379 --save '' --appendonly no >"$directory/redis.log" &
process[redis]=$!
(cd "$directory/run" && exec python3 -m http.server 18890 --bind 127.0.0.1) >"$directory/backend.log" 2>&1 &
process[backend]=$!
"$gateway" certgen --local --config-home "$directory/config" >"$directory/certgen.log" 2>&1
mount --bind "$directory/config/certs/envoy" /certs
certificates=$directory/config/certs/envoy-rate-limit

start_tollgate() {
    (
        while IFS='=' read -r name value; do
            export "$name=${value//\/certs/$certificates}"
        done < <(grep -v -e '^#' -e '^$' -e '^GRPC_SERVER_TLS_CA_CERT' "$project/tests/xds/envoy-gateway.env")
        export REDIS_URL=127.0.0.1:18379 GRPC_PORT=8081 PORT=18891 DEBUG_PORT=18892 PROMETHEUS_ADDR=:18893
        export PROMETHEUS_MAPPER_YAML=$project/crates/envoyproxy/src/variables/envoy_gateway_mapping.yaml
        export TOLLGATE_RULES_OVERLAY=$directory/overlay
        # Exact counts on a busy machine too, on which Envoy Gateway takes long to start.
        export TOLLGATE_STORE_TIMEOUT=2s TOLLGATE_XDS_INITIAL_FETCH_TIMEOUT=2m
        cd "$directory"
        exec -a ratelimit "$tollgate"
    ) >>"$directory/tollgate.log" 2>&1 &
    process[tollgate]=$!
    # Envoy Gateway has a health probe on the same port, and does without it.
    until_so "tollgate" bash -c '</dev/tcp/127.0.0.1/8081'
}
start_gateway() {
    "$gateway" server --config-path "$directory/envoy-gateway.yaml" >>"$directory/envoy-gateway.log" 2>&1 &
    process[gateway]=$!
}
end() { # name
    kill "${process[$1]}"
    wait "${process[$1]}" || true
}
status() { curl -s -o /dev/null -w '%{http_code}' "$@" http://127.0.0.1:18888/; }
rules() { curl -s http://127.0.0.1:18892/rlconfig; }
metric() { curl -s http://127.0.0.1:18892/metrics | awk -v name="$1" '$1 == name {print $2}'; }
is_ready() { [ "$(curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:18891/healthcheck)" = 200 ]; }
is_connected() { [ "$(metric tollgate_xds_connected)" = 1 ]; }
is_status() { # status, arguments of curl
    local wanted=$1
    shift
    [ "$(status "$@")" = "$wanted" ]
}
has_limit() { # value of the header, arguments of curl
    local wanted=$1
    shift
    curl -s -o /dev/null -D - "$@" http://127.0.0.1:18888/ | grep -qi "^x-ratelimit-limit: $wanted"
}
passed() { # requests, arguments of curl: sends them from 8 clients; prints how many pass
    local codes
    codes=$(seq "$1" | xargs -P 8 -I '{}' curl -s -o /dev/null -w '%{http_code}\n' "${@:2}" "http://127.0.0.1:18888/?{}")
    grep -v -e '^200$' -e '^429$' <<<"$codes" >&2 && fail "a status other than 200 and 429"
    grep -c '^200$' <<<"$codes" || true
}
apply() { # file, and what is replaced in it
    sed "${2:-}" "$1" >"$directory/next.yaml"
    mv "$directory/next.yaml" "$directory/resources/policy.yaml"
}
edits=()
edit() { # requests: changes the limit of each user, and measures the time until it is active
    local begun=${EPOCHREALTIME/./} took
    apply "$here/limits.yaml" "s/requests: 50/requests: $1/"
    until rules | grep -q "requests_per_unit=$1,"; do
        took=$(((${EPOCHREALTIME/./} - begun) / 1000))
        [ "$took" -lt 60000 ] || fail "the limit of $1 is not active"
        sleep 0.01
    done
    took=$(((${EPOCHREALTIME/./} - begun) / 1000))
    edits+=("$took")
    # Of which Envoy Gateway takes nearly all, until it pushes.
    local pushed active
    pushed=$(grep 'global-ratelimit.*received a notification' "$directory/envoy-gateway.log" | tail -1 | cut -f 1)
    active=$(grep 'rules of the control plane active' "$directory/tollgate.log" | tail -1 | cut -d ' ' -f 1)
    echo "limit of $1 active after $took ms, $(($(date -d "$active" +%s%3N) - $(date -d "$pushed" +%s%3N))) ms after the push"
}
no_warning() { # at which point; tollgate starts first, and then there are no rules
    ! grep -E 'WARN|ERROR' "$directory/tollgate.log" | grep -v -e 'control plane unreachable' -e 'no rules: every request passes' ||
        fail "tollgate warns $1"
    echo "no warning $1"
}

echo "== Without a policy"
start_tollgate
start_gateway
until_so "readiness" is_ready
until_so "a route through Envoy" is_status 200
expect "rules" "" "$(rules)"
until_so "an empty set of Envoy Gateway" grep 'rules of the control plane active.* rules=0' "$directory/tollgate.log"
no_warning "at the start"

echo "== A limit, to the request"
edit 50
expect "passed of 80 of one user, limit 50" 50 "$(passed 80 -H 'x-user: a')"
expect "passed of 50 of another" 50 "$(passed 50 -H 'x-user: b')"
edit 60
expect "passed of 30 more after the edit to 60" 10 "$(passed 30 -H 'x-user: b')"
no_warning "at a push, with nested shadow mode"

echo "== tollgate restarted"
expect "passed of 40 before" 40 "$(passed 40 -H 'x-user: c')"
end tollgate
start_tollgate
until_so "readiness" is_ready
until_so "a decision" is_status 429 -H 'x-user: a'
expect "passed of 30 after" 20 "$(passed 30 -H 'x-user: c')"
expect "passed of 40 of the exhausted one" 0 "$(passed 40 -H 'x-user: a')"
expect "passed of 40 of another" 40 "$(passed 40 -H 'x-user: d')"
edit 65
expect "passed of 30 more after the edit to 65" 25 "$(passed 30 -H 'x-user: d')"

echo "== Envoy Gateway restarted"
expect "passed of 40 before" 40 "$(passed 40 -H 'x-user: e')"
# Of a user's denied requests, those that are denied from memory do not count.
passed 80 -H 'x-user: a' >"$directory/exhausting.log"
before=$(rules)
(
    while sleep 0.05; do
        status -H 'x-user: a' >>"$directory/probe.log" || true
        echo >>"$directory/probe.log"
        [ "$(rules)" = "$before" ] || echo changed >>"$directory/probe.log"
    done
) &
process[probe]=$!
end gateway
sleep 3
start_gateway
until_so "a stream" is_connected
until_so "a route through Envoy" is_status 429 -H 'x-user: a'
end probe
echo "probes of the exhausted user meanwhile:" && sort "$directory/probe.log" | uniq -c
! grep -q -e '^200$' -e changed "$directory/probe.log" || fail "a limit was lost"
expect "passed of 40 after" 25 "$(passed 40 -H 'x-user: e')"
expect "passed of 40 of another" 40 "$(passed 40 -H 'x-user: f')"
edit 70
expect "passed of 50 more after the edit to 70" 30 "$(passed 50 -H 'x-user: f')"
expect "passed of 70 of another" 70 "$(passed 70 -H 'x-user: g')"
for limit in $(seq 71 80); do edit "$limit"; done
expect "passed of 30 more after edits to 80" 10 "$(passed 30 -H 'x-user: g')"
mapfile -t edits < <(printf '%s\n' "${edits[@]}" | sort -n)
median=${edits[$((${#edits[@]} / 2))]}
echo "${#edits[@]} edits, active after $median ms (median) and ${edits[-1]} ms (slowest)"
[ "$median" -le "$max_edit" ] || fail "edits took $median ms; expected at most $max_edit"

echo "== deploy/envoy-gateway/policy.yaml and overlay.yaml"
awk '/^  limits.yaml: \|$/{on=1;next} on{sub(/^    /, ""); print}' "$project/deploy/envoy-gateway/overlay.yaml" >"$directory/overlay/limits.yaml"
apply "$project/deploy/envoy-gateway/policy.yaml"
for client in 192.0.2.1 2001:db8::1; do
    until_so "the limit of $client" has_limit '100, 100;w=60' -H "x-forwarded-for: $client"
    found=$(passed 60 -H "x-forwarded-for: $client")
    # 20 at once, and 100 a minute.
    [ "$found" -ge 10 ] && [ "$found" -lt 60 ] || fail "$found of 60 requests from $client passed"
    echo "passed of 60 from $client: $found"
done
until_so "another client" is_status 200 -H 'x-forwarded-for: 2001:db8::2'

echo "== The overlay of docs/guides/rules-overlay.md"
awk '/^```yaml overlay$/{on=1;next} /^```$/{on=0} on' "$project/docs/guides/rules-overlay.md" >"$directory/overlay/limits.yaml"
apply "$here/limits.yaml" 's/requests: 50/requests: 1000000/'
has_users() { rules | grep -q 'rule-0-match-0: '; }
until_so "the limit of users" has_users
until_so "the bucket of the overlay" has_limit '100, 100;w=300' -H 'x-user: h'
found=$(passed 200 -H 'x-user: h')
[ "$found" -le 120 ] || fail "$found of 200 requests passed"
echo "passed of 200: $found"
for push in $(seq 20); do
    apply "$here/limits.yaml" "s/requests: 50/requests: $((1000000 + push))/"
    sleep 1
    has_limit '100, 100;w=300' -H 'x-user: h' || fail "no bucket after push $push"
done
rules
metric tollgate_config_loads_total
[ "$(metric tollgate_overlay_patterns_unmatched)" = 0 ] || fail "the overlay matches nothing"
echo "passed with Envoy Gateway $version and Envoy $envoy_version; logs in $directory"
