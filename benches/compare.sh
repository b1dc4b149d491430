#!/usr/bin/env bash
# Measures tollgate with its defaults in each mode, next to bare gRPC, and writes benches/RESULTS.md.
# Needs redis-server, curl, llvm-profdata (see deploy/docker/compile.sh), and a machine without other load.
#
#   ROUNDS=5 SECONDS_EACH=4 LATENCY_SECONDS=60 benches/compare.sh
#   ONLY='cluster|3 descriptors' benches/compare.sh     rows whose id or name matches; writes nothing
#   PARTS='latency exactness' benches/compare.sh        of those in ALL below; writes nothing
#   TOLLGATE=… RELEASE=… ECHO=… LOAD=… benches/compare.sh     these binaries, of `tollgate` as in the image and as built by
#                                                       `cargo build --release`, `benches/echo.rs` and `tollgate-load`
#
# Compares CPU time per decision of the server's process, as a ratio within one round: rates and latencies depend on other
# load on the machine. Rounds alternate between the rows. In benches/compare/: `rows.sh` has the rows and their targets,
# `servers.sh` starts the servers, `measure.sh` measures; `costs.sh`, `latency.sh`, `exactness.sh`, `saturation.sh`,
# `memory.sh` and `talkers.sh` are the parts; and the .awk files format the tables.
# `notes.md`, about rows that need an explanation, becomes part of the results. `capacity.sh` then writes the tables
# that follow from them into docs/guides/capacity.md.
set -euo pipefail
cd "$(dirname "$0")/.."

ROUNDS=${ROUNDS:-3}
SECONDS_EACH=${SECONDS_EACH:-2}
# shellcheck disable=SC2034 # Used by a part.
LATENCY_SECONDS=${LATENCY_SECONDS:-10}
ONLY=${ONLY:-}
ALL="costs latency exactness saturation memory talkers"
PARTS=${PARTS:-$([ -n "$ONLY" ] && echo costs || echo "$ALL")}
RESULTS=benches/RESULTS.md

# The program of the image.
if [ -z "${TOLLGATE:-}" ]; then sh deploy/docker/compile.sh target/shipped; fi
if [[ -z ${RELEASE:-} && $PARTS = *costs* ]]; then cargo build --release --locked; fi
if [ -z "${ECHO:-}" ]; then cargo build --profile dist --locked --example echo; fi
if [ -z "${LOAD:-}" ]; then cargo build --profile dist --locked --package tollgate-load; fi
# shellcheck disable=SC2034 # Used by the parts.
tollgate=${TOLLGATE:-target/shipped/usr/bin/tollgate} release=${RELEASE:-target/release/tollgate} floor=${ECHO:-target/dist/examples/echo}
# shellcheck disable=SC2034
load_generator=${LOAD:-target/dist/tollgate-load}
work=$(mktemp -d)
for part in rows servers measure $ALL; do
    # shellcheck source=/dev/null
    . "benches/compare/$part.sh"
done
trap stop_all EXIT
copy_rules

report() {
    # shellcheck disable=SC2016 # Backquotes of Markdown.
    printf '# Results\n\nWritten by `benches/compare.sh`: medians of %s rounds of %s s for each row.\n' \
        "$ROUNDS" "$SECONDS_EACH"
    for part in $PARTS; do
        printf '\n'
        "report_$part"
    done
    printf '\n'
    cat benches/compare/notes.md
    printf '\n## Machine\n\n- %s processors, %s; Linux %s.\n' "$(nproc)" \
        "$(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)" "$(uname -r)"
    printf -- '- Load average at the end, about %s of it from the measurement: %s.\n' \
        "$(nproc)" "$(cut -d' ' -f1-3 /proc/loadavg)"
    printf -- '- Built by %s at %s; %s.\n' "$(rustc --version)" "$(git describe --always --dirty)" \
        "$(redis-server --version | cut -d' ' -f1-3)"
}

for part in $PARTS; do "measure_$part"; done
report >"$work/report"
if [ "$PARTS" = "$ALL" ] && [ -z "$ONLY" ]; then
    cp "$work/report" "$RESULTS"
    benches/compare/capacity.sh
fi
cat "$work/report"
