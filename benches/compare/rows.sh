# The rows of costs: load, servers and targets. Sourced by benches/compare.sh.
#
# Id, name, servers, flags of `tollgate-load`, and two targets, as multiples within the same round: of the service's CPU,
# and of Redis' CPU. Both are multiples of the service's CPU in the row `floor`, which is F, or of the same figure of
# another row. In the flags, {round} is another text in each round, so that the counters are new.
# shellcheck shell=bash disable=SC2034,SC2154 # Used by the other parts; set by benches/compare.sh.
KEYS='--keys 100000'
CLIENTS="--descriptor client={key} $KEYS"
TAG="--descriptor tenant={key} --descriptor tenant={key},path=orders --descriptor tenant={key},path=search $KEYS"
LEASED="--descriptor leased={key} $KEYS --zipf 1.1"
# Equal numbers of counters for one rule and for 10,000 rules.
PATHS='--descriptor path=/v1/{key} --keys 10000'
ONE_PATH='--descriptor path=/v1/77'
ROWS=(
    "floor|bare tonic, 1 key|echo|--descriptor client=0||"
    "memory-1|memory, 1 key|memory|--descriptor client=0|1.1 floor|"
    "memory-100k|memory, 100,000 keys|memory|$CLIENTS|1.15 floor|"
    "redis-1|Redis strict, 1 key|redis|--descriptor client=0|1.25 floor|0.2 floor"
    "redis-1-bucket|Redis strict, 1 key, token_bucket|redis|--descriptor bucket=0|1.25 floor|0.2 floor"
    "redis-100k|Redis strict, 100,000 keys|redis|$CLIENTS|1.4 floor|0.9 floor"
    "redis-100k-bucket|Redis strict, 100,000 keys, token_bucket|redis|--descriptor bucket={key} $KEYS|1.4 floor|1 floor"
    "redis-100k-sliding|Redis strict, 100,000 keys, sliding_window|redis|--descriptor sliding={key} $KEYS|1.4 floor|1 floor"
    "redis-log|Redis, sliding_window_log, 1 key of 1,000|redis|--descriptor log={round}|1.5 floor|1.1 floor"
    "redis-100k-log|Redis, sliding_window_log, 100,000 keys of 1,000|redis|--descriptor logs={key} $KEYS||"
    "redis-ban|Redis strict, 100,000 keys, a rule with ban, none banned|redis|--descriptor ban={key} $KEYS|1.05 redis-100k|1.05 redis-100k"
    "redis-3-of-a-tag|Redis strict, 3 descriptors of one tag, 100,000 keys|redis|$TAG|1.7 floor|2 floor"
    "redis-1-of-a-tag|Redis strict, 1 of 3 counters of a tag, 100,000 keys|redis|--descriptor tenant={key} $KEYS||"
    "leased-100k|Redis leased, 100,000 keys by Zipf 1.1|redis|$LEASED|1.45 floor|0.45 floor"
    "leased-1|Redis leased, 1 key|redis|--descriptor leased=0|1.15 floor|0.02 floor"
    "auto-100k|Redis auto, 100,000 keys by Zipf 1.1, 1 % near their limit|redis|--domain auto --descriptor client={round}-{key} $KEYS --zipf 1.1|1.45 floor|0.55 floor"
    "denied-1|Redis, denied, 1 key|redis|--descriptor denied=0|1.15 floor|0.02 floor"
    "memory-1-release|memory, 1 key, built by \`cargo build --release\`|memory-release|--descriptor client=0|1.15 memory-1|"
    "redis-1-release|Redis strict, 1 key, built by \`cargo build --release\`|redis-release|--descriptor client=0|1.15 redis-1|"
    "redis-100k-release|Redis strict, 100,000 keys, built by \`cargo build --release\`|redis-release|$CLIENTS|1.15 redis-100k|"
    "memory-1-rule-met|memory, 1 rule, 1 key|memory-1-rule|$ONE_PATH||"
    "memory-1-of-10k-rules|memory, 10,000 rules, 1 key|memory-10k-rules|$ONE_PATH|1.1 memory-1-rule-met|"
    "redis-1-rule-met|Redis strict, 1 rule, 1 key|redis-1-rule|$ONE_PATH||"
    "redis-1-of-10k-rules|Redis strict, 10,000 rules, 1 key|redis-10k-rules|$ONE_PATH|1.1 redis-1-rule-met|1.1 redis-1-rule-met"
    "memory-1-rule|memory, 1 rule, 10,000 keys|memory-1-rule|$PATHS||"
    "memory-10k-rules|memory, 10,000 rules, one for each key|memory-10k-rules|$PATHS|1.1 memory-1-rule|"
    "redis-1-rule|Redis strict, 1 rule, 10,000 keys|redis-1-rule|$PATHS||"
    "redis-10k-rules|Redis strict, 10,000 rules, one for each key|redis-10k-rules|$PATHS|1.1 redis-1-rule|1.1 redis-1-rule"
    "redis-100k-by-3|Redis strict, 100,000 keys, 3 instances|redis redis-b redis-c|$CLIENTS|1.15 redis-100k|1.15 redis-100k"
    "cluster-1|Redis cluster of 1, strict, 100,000 keys|cluster-1|$CLIENTS|1.45 floor|1 floor"
    "cluster-3|Redis cluster of 3, strict, 100,000 keys|cluster-3|$CLIENTS|1.55 floor|1.15 floor"
    "cluster-3-bucket|Redis cluster of 3, strict, 100,000 keys, token_bucket|cluster-3|--descriptor bucket={key} $KEYS|1.55 floor|1.15 floor"
    "cluster-3-leased|Redis cluster of 3, leased, 100,000 keys by Zipf 1.1|cluster-3|$LEASED|1.45 floor|0.5 floor"
    "cluster-6|Redis cluster of 6, strict, 100,000 keys|cluster-6|$CLIENTS|1.65 floor|1.3 floor"
)

# The selected rows, and the rows that they are compared with.
chosen_rows() {
    local row id name flags service redis wanted=' floor '
    for row in "${ROWS[@]}"; do
        IFS='|' read -r id name _ flags service redis <<<"$row"
        if [[ $flags == *'--domain auto'* && ! -e $work/rules/auto.yaml ]]; then continue; fi
        if [[ -z $ONLY || $id =~ $ONLY || $name =~ $ONLY ]]; then wanted+="$id ${service#* } ${redis#* } "; fi
    done
    for row in "${ROWS[@]}"; do
        if [[ $wanted == *" ${row%%|*} "* ]]; then printf '%s\n' "$row"; fi
    done
}

# The row of an id.
row_of() {
    local row
    for row in "${ROWS[@]}"; do
        if [ "${row%%|*}" = "$1" ]; then printf '%s' "$row"; fi
    done
}
