#!/usr/bin/env bash
# Shows in three minutes what tollgate does: a limit, a hot key, an outage of Redis, and a rule that changes. Fails if one of
# them does not turn out as it narrates. docs/guides/demo.md describes it.
#
#   docker compose -f deploy/compose/compose.yaml up --build --detach
#   deploy/compose/demo.sh
#
# The variables below fit it to another arrangement of the same services; PACE=0 leaves out the pauses for readers.
set -euo pipefail
cd "$(dirname "$0")"

ENVOY=${ENVOY:-http://127.0.0.1:10000}
RULES=${RULES:-rules/demo.yaml}
PACE=${PACE:-1}
TOLLGATE=${TOLLGATE:-docker compose exec -T tollgate /usr/bin/tollgate}
LOAD=${LOAD:-cargo run --quiet --release --package tollgate-load --}
TARGET=${TARGET:-http://127.0.0.1:8081}
NODES="redis-1 redis-2 redis-3 redis-4 redis-5 redis-6"
STOP_REDIS=${STOP_REDIS:-docker compose --progress quiet pause $NODES}
START_REDIS=${START_REDIS:-docker compose --progress quiet unpause $NODES}
# Seconds of the load, and requests per second of its hot key.
SECONDS_OF_LOAD=${SECONDS_OF_LOAD:-20}
HOT=${HOT:-3000}

# Counters of their own for each run.
run=$$-$(date +%s)
before=$(mktemp)
cp "$RULES" "$before"
away=false
restore() {
    # Written in place: a mount of the file would not see another one.
    cat "$before" >"$RULES"
    rm -f "$before"
    if $away; then $START_REDIS || true; fi
}
trap restore EXIT
begin=$SECONDS

narrate() { printf '\n[%d:%02d] %s\n' $(((SECONDS - begin) / 60)) $(((SECONDS - begin) % 60)) "$*"; }
pause() { sleep $(($1 * PACE)); }
fail() {
    printf 'unexpected: %s\n' "$*" >&2
    exit 1
}
# The statuses of requests for a path, one after the other on one connection.
statuses() { # path, number
    local number
    for number in $(seq "$2"); do
        printf '# %s\nurl = "%s%s"\noutput = "/dev/null"\n' "$number" "$ENVOY" "$1"
    done | curl -s -w '%{http_code}\n' --max-time 30 --config - || fail "Envoy does not respond at $ENVOY"
}
count() { # statuses, status
    grep -c "^$2$" <<<"$1" || true
}
show() { # statuses
    tr '\n' ' ' <<<"$1"
    echo
}

# Envoy lets requests pass until tollgate is ready.
waited=0
until curl -s -o /dev/null -D - "$ENVOY/checkout-$run-ready" | grep -qi '^x-ratelimit-limit: '; do
    waited=$((waited + 1))
    [ "$waited" -lt 60 ] || fail "tollgate does not decide for Envoy at $ENVOY"
    sleep 1
done

narrate "A limit: /login admits 10 requests an hour. Twelve requests:"
result=$(statuses "/login-$run" 12)
show "$result"
[ "$(count "$result" 200) $(count "$result" 429)" = "10 2" ] || fail "expected 10 admitted and 2 denied"
echo "The last response, with the time to come back:"
curl -s -i "$ENVOY/login-$run" | tr -d '\r' | grep -iE '^(HTTP|retry-after|x-ratelimit)'
pause 20

narrate "A hot key: a client sends $HOT requests per second, and has 50. Beside it, 200 clients within their limits:"
$LOAD --target "$TARGET" --domain edge --descriptor "client=$run-{key}" --keys 200 --rate 400 \
    --duration "${SECONDS_OF_LOAD}s" --quiet </dev/null >/dev/null &
others=$!
$LOAD --target "$TARGET" --domain edge --descriptor "client=$run-hot" --rate "$HOT" \
    --duration "${SECONDS_OF_LOAD}s" --quiet
wait "$others" || fail "the load of other clients failed"
# An instance publishes its requests every two seconds, and each reads those of all at most once a second.
waited=0
until keys=$($TOLLGATE top --limit 2 ${ADMIN:+--admin-url "$ADMIN"} </dev/null) && grep -qF -- "$run-hot" <<<"$keys"; do
    waited=$((waited + 1))
    [ "$waited" -lt 60 ] || fail "the hot key is not among those with the most requests: $keys"
    sleep 0.5
done
echo "The keys with the most requests:"
printf '%s\n' "$keys"
pause 15

narrate "Redis stops. /checkout admits 10 requests an hour; instances decide by their share. Twenty requests:"
away=true
$STOP_REDIS
result=$(statuses "/checkout-$run" 20)
show "$result"
admitted=$(count "$result" 200) denied=$(count "$result" 429)
[ $((admitted + denied)) = 20 ] || fail "a request failed"
[ "$admitted" -gt 0 ] && [ "$denied" -gt 0 ] || fail "expected that some are admitted and some denied without Redis"
pause 20
$START_REDIS
away=false
narrate "Redis is back. It has kept its counts, and /login is still denied:"
waited=0
until [ "$(statuses "/login-$run" 1)" = 429 ]; do
    waited=$((waited + 1))
    [ "$waited" -lt 30 ] || fail "expected a denial"
    sleep 1
done
echo 429
pause 15

narrate "A rule changes, without a restart: /login from 10 to 15. Requests until one is denied:"
sed 's/requests_per_unit: 10}/requests_per_unit: 15}/' "$before" >"$RULES"
waited=0
until [ "$(statuses "/login-$run" 1)" = 200 ]; do
    waited=$((waited + 1))
    [ "$waited" -lt 300 ] || fail "the new rule is not active"
    sleep 0.2
done
result=200$'\n'$(statuses "/login-$run" 5)
show "$result"
[ "$(count "$result" 200) $(count "$result" 429)" = "5 1" ] || fail "expected five more"
pause 10

narrate "The end. Grafana shows it: http://127.0.0.1:3000/d/tollgate"
