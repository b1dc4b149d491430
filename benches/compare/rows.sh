# The rows of costs: load, servers and targets. Sourced by benches/compare.sh.
#
# Id, name, servers, flags of `tollgate load`, and two targets: of the service's CPU as a multiple of another row's in
# the same round, and of Redis' CPU per request in µs or as a multiple of another row's. All others are compared with
# the row `floor`, which defines F.
# shellcheck shell=bash disable=SC2034 # Used by the other parts.
KEYS='--keys 100000'
CLIENTS="--descriptor client={key} $KEYS"
TAG="--descriptor tenant={key} --descriptor tenant={key},path=orders --descriptor tenant={key},path=search $KEYS"
# Equal numbers of counters for one rule and for 10,000 rules.
PATHS='--descriptor path=/v1/{key} --keys 10000'
ONE_PATH='--descriptor path=/v1/77'
ROWS=(
    "floor|bare tonic, 1 key|echo|--descriptor client=0||"
    "memory-1|memory, 1 key|memory|--descriptor client=0|1.2 floor|"
    "memory-100k|memory, 100,000 keys|memory|$CLIENTS|1.35 floor|"
    "redis-1|Redis strict, 1 key|redis|--descriptor client=0|1.4 floor|0.8"
    "redis-100k|Redis strict, 100,000 keys|redis|$CLIENTS|1.6 floor|4.5"
    "redis-3-of-a-tag|Redis strict, 3 descriptors of one tag, 100,000 keys|redis|$TAG|1.8 floor|8"
    "redis-1-of-a-tag|Redis strict, 1 of 3 counters of a tag, 100,000 keys|redis|--descriptor tenant={key} $KEYS||"
    "leased-100k|Redis leased, 100,000 keys by Zipf 1.1|redis|--descriptor leased={key} $KEYS --zipf 1.1|1.5 floor|3"
    "leased-1|Redis leased, 1 key|redis|--descriptor leased=0|1.3 floor|0.05"
    "denied-1|Redis, denied, 1 key|redis|--descriptor denied=0|1.3 floor|0"
    "memory-1-rule-met|memory, 1 rule, 1 key|memory-1-rule|$ONE_PATH||"
    "memory-1-of-10k-rules|memory, 10,000 rules, 1 key|memory-10k-rules|$ONE_PATH|1.1 memory-1-rule-met|"
    "redis-1-rule-met|Redis strict, 1 rule, 1 key|redis-1-rule|$ONE_PATH||"
    "redis-1-of-10k-rules|Redis strict, 10,000 rules, 1 key|redis-10k-rules|$ONE_PATH|1.1 redis-1-rule-met|1.1 redis-1-rule-met"
    "memory-1-rule|memory, 1 rule, 10,000 keys|memory-1-rule|$PATHS||"
    "memory-10k-rules|memory, 10,000 rules, one for each key|memory-10k-rules|$PATHS|1.1 memory-1-rule|"
    "redis-1-rule|Redis strict, 1 rule, 10,000 keys|redis-1-rule|$PATHS||"
    "redis-10k-rules|Redis strict, 10,000 rules, one for each key|redis-10k-rules|$PATHS|1.1 redis-1-rule|1.1 redis-1-rule"
    "redis-100k-by-3|Redis strict, 100,000 keys, 3 instances|redis redis-b redis-c|$CLIENTS|1.15 redis-100k|1.15 redis-100k"
    "cluster-1|Redis cluster of 1, strict, 100,000 keys|cluster-1|$CLIENTS||8"
    "cluster-3|Redis cluster of 3, strict, 100,000 keys|cluster-3|$CLIENTS|1.15 cluster-1|8"
    "cluster-3-leased|Redis cluster of 3, leased, 100,000 keys by Zipf 1.1|cluster-3|--descriptor leased={key} $KEYS --zipf 1.1||"
    "cluster-6|Redis cluster of 6, strict, 100,000 keys|cluster-6|$CLIENTS|1.15 cluster-1|1.15 cluster-1"
)

# The selected rows, and the rows that they are compared with.
chosen_rows() {
    local row id name service redis wanted=' floor '
    for row in "${ROWS[@]}"; do
        IFS='|' read -r id name _ _ service redis <<<"$row"
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
