#!/usr/bin/env bash
# Measures capacity by instances, shards and processors, and writes a table, a model and a plot.
#
#   benches/scale.sh                                    builds, and measures on all processors of this machine
#   benches/scale.sh --tollgate FILE --load FILE        measures a program that another machine built, with its load
#                                                       generator; needs no toolchain
#   benches/scale.sh --plan 16                          prints the rows for a machine of 16 processors
#   benches/scale.sh --quick                            a few short rows, to check the script
#
# Needs Linux, redis-server and redis-cli 7 (--redis-server, --redis-cli), awk and, for pinning, taskset. Uses loopback
# only, at ports from --port on.
#
# Each row gives some processors to tollgate, one to each Redis master of a cluster as far as they last, and all others
# to the load generator. The processes are pinned to them, whole cores first. A row whose roles do not fit beside each
# other shares all processors without pinning; its rates are those of the machine, its CPU times still those of the roles.
# The load is a closed loop to capacity, then an open loop at 60 % of that rate for the latency. A row is marked if the
# load generator used 80 % of its processors or more: tollgate and Redis then have more capacity than was measured.
#
# Writes into --out: rows.tsv (every round), medians.tsv, scale.md (table and model), scale.svg. In benches/scale/:
# `plan.sh` divides the processors, `servers.sh` starts the processes, `measure.sh` measures a row, and the .awk files
# compute and format.
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck disable=SC2034 # Used by the parts.
tollgate='' load_generator='' redis_server=redis-server redis_cli=redis-cli out=target/scale port=18500 mode=full only=''
usage() {
    sed -n '2,/^set /s/^# \{0,1\}//p' benches/scale.sh >&2
    exit 2
}
# shellcheck disable=SC2034
while [ $# -gt 0 ]; do
    case $1 in
        --quick) mode=quick && shift ;;
        --plan) mode=plan && planned=${2:-} && shift 2 ;;
        --tollgate) tollgate=$2 && shift 2 ;;
        --load) load_generator=$2 && shift 2 ;;
        --redis-server) redis_server=$2 && shift 2 ;;
        --redis-cli) redis_cli=$2 && shift 2 ;;
        --out) out=$2 && shift 2 ;;
        --port) port=$2 && shift 2 ;;
        --only) only=$2 && shift 2 ;; # Series whose names match.
        *) usage ;;
    esac
done

for part in plan servers measure; do
    # shellcheck source=/dev/null
    . "benches/scale/$part.sh"
done
if [ "$mode" = plan ]; then
    plan "$planned"
    exit
fi

# shellcheck disable=SC2034 # Used by the parts.
ROUNDS=${ROUNDS:-3} SECONDS_EACH=${SECONDS_EACH:-5} WARM_UP_SECONDS=2
# shellcheck disable=SC2034
if [ "$mode" = quick ]; then ROUNDS=1 SECONDS_EACH=0.3 WARM_UP_SECONDS=0.2; fi
if [ -z "$tollgate" ]; then
    # The program of the image.
    sh deploy/docker/compile.sh target/shipped
    tollgate=target/shipped/usr/bin/tollgate
fi
if [ -z "$load_generator" ]; then
    cargo build --profile dist --locked --package tollgate-load
    load_generator=target/dist/tollgate-load
fi
mkdir -p "$out"
work=$(mktemp -d)
trap stop_all EXIT
write_rules

mapfile -t CPUS < <(processors)
selected() { if [ "$mode" = quick ]; then quick_plan "${#CPUS[@]}"; else plan "${#CPUS[@]}"; fi; }
selected | awk -F'\t' -v only="$only" 'only == "" || $1 ~ only' >"$work/plan"
[ -s "$work/plan" ] || { log "no row for ${#CPUS[@]} processors"; exit 1; }

printf '%s\n' "$COLUMNS_OF_ROWS" >"$work/rows.tsv"
for round in $(seq "$ROUNDS"); do
    while IFS=$'\t' read -r series workload instances service shards redis load <&3; do
        measure_row "$round" "$series" "$workload" "$instances" "$service" "$shards" "$redis" "$load" \
            >>"$work/rows.tsv"
        log "round $round of $ROUNDS: $series, $workload, $instances x $service, $shards shards:" \
            "$(tail -n 1 "$work/rows.tsv" | cut -f 10) per second"
    done 3<"$work/plan"
done

awk -f benches/compare/median.awk -f benches/scale/medians.awk "$work/rows.tsv" >"$work/medians.tsv"
{
    # shellcheck disable=SC2016 # Backquotes of Markdown.
    printf '# Scale\n\nWritten by `benches/scale.sh`: medians of %s rounds of %s s.\n\n' "$ROUNDS" "$SECONDS_EACH"
    awk -f benches/scale/model.awk -f benches/scale/table.awk "$work/medians.tsv"
    printf '\n## Machine\n\n- %s processors, %s; Linux %s.\n' "${#CPUS[@]}" \
        "$(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)" "$(uname -r)"
    printf -- '- %s; %s.\n' "$("$tollgate" --version)" "$("$redis_server" --version | cut -d' ' -f1-3)"
} >"$work/scale.md"
awk -f benches/scale/model.awk -f benches/scale/plot.awk "$work/medians.tsv" >"$work/scale.svg"
cp "$work"/{rows.tsv,medians.tsv,scale.md,scale.svg} "$out"
cat "$work/scale.md"
log "written to $out"
