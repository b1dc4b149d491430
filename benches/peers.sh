#!/usr/bin/env bash
# Measures tollgate beside other rate-limit services: same rules, same load, same Redis, one after the other.
# Needs redis-server, curl, llvm-profdata (see deploy/docker/compile.sh), and a machine without other load.
#
#   RATELIMIT=… LIMITADOR=… benches/peers.sh            the binaries of the services; a service without one is left out
#   ROUNDS=3 CELL_SECONDS=10 benches/peers.sh           shorter cells, in several rounds
#   ONLY='1 key' RAW=a.tsv benches/peers.sh             some loads, whose raw data goes to this file; no page is written
#   TOLLGATE=… ECHO=… LOAD=… benches/peers.sh           these binaries, of `tollgate`, `benches/echo.rs` and `tollgate-load`
#
# RATELIMIT is envoyproxy/ratelimit (its `service_cmd`), LIMITADOR Kuadrant's `limitador-server`; RATELIMIT_VERSION and
# LIMITADOR_VERSION name them in the results. Each cell starts a new Redis and a new server with its defaults, warms up for
# two seconds, and measures. Writes one line a cell to benches/peers/results.tsv, which is the raw data, and the tables
# of it into docs/guides/comparison.md. `servers.sh` in benches/peers/ starts the servers; `rules.yaml` and `limits.yaml`
# are their rules.
set -euo pipefail
cd "$(dirname "$0")/.."

ROUNDS=${ROUNDS:-1}
CELL_SECONDS=${CELL_SECONDS:-60}
ONLY=${ONLY:-}
RESULTS=benches/peers/results.tsv
RAW=${RAW:-$([ -n "$ONLY" ] && echo /dev/null || echo $RESULTS)}

# The program of the image.
if [ -z "${TOLLGATE:-}" ]; then sh deploy/docker/compile.sh target/shipped; fi
if [ -z "${ECHO:-}" ]; then cargo build --profile dist --locked --example echo; fi
if [ -z "${LOAD:-}" ]; then cargo build --profile dist --locked --package tollgate-load; fi
# shellcheck disable=SC2034 # Used by the parts.
tollgate=${TOLLGATE:-target/shipped/usr/bin/tollgate} floor=${ECHO:-target/dist/examples/echo}
# shellcheck disable=SC2034
load_generator=${LOAD:-target/dist/tollgate-load}
work=$(mktemp -d)
for part in compare/servers compare/measure peers/servers; do
    # shellcheck source=/dev/null
    . "benches/$part.sh"
done
trap stop_all EXIT

# Name and flags of `tollgate-load`. A closed loop of 4 × 32 requests unless there is a rate.
TAG='--descriptor tenant={key} --descriptor tenant={key},path=orders --descriptor tenant={key},path=search'
LOADS=(
    "1 key|--descriptor client=0"
    "100,000 keys|--descriptor client={key} --keys 100000"
    "100,000 keys by Zipf 1.1|--descriptor client={key} --keys 100000 --zipf 1.1"
    "3 descriptors, 100,000 keys|$TAG --keys 100000"
    "denied, 1 key|--descriptor denied=0"
    "100,000 keys, 5,000 per second|--descriptor client={key} --keys 100000 --rate 5000"
    "100,000 keys, 20,000 per second|--descriptor client={key} --keys 100000 --rate 20000"
    "1,000 per key, 1,000 keys by Zipf 1.1|--descriptor few={key} --keys 1000 --zipf 1.1 --admitted-limit 1000"
)
COLUMNS_OF_RESULTS="version load server round seconds requests ok over_limit service_us redis_us rate p50 p99 p99.9"
COLUMNS_OF_RESULTS+=" degraded admitted beyond"

# Measures a server under a load, and appends a line to the raw data.
cell() { # server round name flags
    local server=$1 before redis_before report figure degraded=0
    redis_server "$REDIS"
    start_peer "$server"
    # Another key, so that limits are reached in the measurement only.
    # shellcheck disable=SC2086 # Split into words.
    load "$server" 2 ${4/few=/client=warm-} >/dev/null 2>&1 || true
    before=$(cpu_of "$server") redis_before=$(cpu_of_redis "$REDIS")
    # shellcheck disable=SC2086 # A key beyond its limit is found in the report.
    report=$(load "$server" "$CELL_SECONDS" $4 2>/dev/null) || true
    if [[ $server == tollgate* ]]; then degraded=$(degraded_of "$server"); fi
    {
        printf '%s\t%s\t%s\t%s' "$(version_of "$server")" "$3" "$(title_of "$server")" "$2"
        for figure in seconds requests ok over_limit; do printf '\t%s' "$(number $figure <<<"$report")"; done
        printf '\t%s\t%s' $(($(cpu_of "$server") - before)) $(($(cpu_of_redis "$REDIS") - redis_before))
        for figure in rate p50 p99 p99.9; do printf '\t%s' "$(number $figure <<<"$report")"; done
        printf '\t%s\t%s\t%s\n' "$degraded" "$(number total <<<"$report")" "$(number beyond <<<"$report")"
    } >>"$work/results"
    log "round $2 of $ROUNDS: $3: $(title_of "$server"): $(number rate <<<"$report") per second"
    stop_peer "$server"
    stop "redis:$REDIS"
}

write_peer_rules
for round in $(seq "$ROUNDS"); do
    for entry in "${LOADS[@]}"; do
        if [[ -n $ONLY && ! ${entry%%|*} =~ $ONLY ]]; then continue; fi
        for server in $(present_peers); do cell "$server" "$round" "${entry%%|*}" "${entry#*|}"; done
    done
done
{
    tr ' ' '\t' <<<"$COLUMNS_OF_RESULTS"
    cat "$work/results"
} >"$work/results.tsv"
cat "$work/results.tsv" >"$RAW"
if [ "$RAW" = $RESULTS ]; then benches/peers/page.sh; fi
awk -f benches/compare/median.awk -f benches/peers/table.awk "$work/results.tsv"
