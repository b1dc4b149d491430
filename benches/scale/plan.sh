# Divides processors between tollgate, Redis and the load generator. Sourced by benches/scale.sh.
# shellcheck shell=bash

# A row of a plan: series, workload, instances, processors of tollgate, shards (0: memory), processors of Redis, and
# processors of the load generator; 0 for these where the roles share all processors.
row() { printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$@"; }

# A row in which Redis has a processor for each shard and the load generator has what is left.
beside() { # processors series workload instances service shards
    local load=$(($1 - $5 - $6))
    if [ "$5" -ge 1 ] && [ "$load" -ge 1 ]; then row "$2" "$3" "$4" "$5" "$6" "$6" "$load"; fi
}

# A row whose roles share all processors.
shared() { # processors series workload instances shards
    row "$2" "$3" "$4" "$1" "$5" 0 0
}

# The rows for a machine. The load generator costs about as much as tollgate, so it is given two fifths of what Redis
# leaves.
plan() { # processors
    local all=$1 count shards
    if [ "$all" -lt 4 ]; then
        for shards in 1 2 3 6; do shared "$all" shards strict 1 "$shards"; done
        shared "$all" instances strict 2 1
        shared "$all" leased leased 1 1
        shared "$all" workers memory 1 0
        return
    fi
    # Shards, each with a processor of its own.
    for shards in 1 2 3 4 6 8; do
        if [ "$shards" -le $((all / 2)) ]; then
            beside "$all" shards strict 1 $(((all - shards) * 3 / 5)) "$shards"
        fi
    done
    # One half and three quarters of the machine for tollgate and Redis: 8 and 12 of 16.
    for count in $((all / 2)) $((all * 3 / 4)); do
        beside "$all" budget strict 1 $((count * 3 / 5)) $((count - count * 3 / 5))
    done
    # Instances, which divide the same processors.
    for count in 1 2 4; do
        if [ "$count" -le $((all / 4)) ]; then beside "$all" instances strict "$count" $((all / 4)) 1; fi
    done
    beside "$all" leased leased 1 $(((all - 1) * 3 / 5)) 1
    # Workers of one instance without Redis.
    for count in 1 2 4 8; do
        if [ "$count" -le $((all / 2)) ]; then beside "$all" workers memory 1 "$count" 0; fi
    done
}

# Two rows that share all processors: one without Redis, and one with two shards and two instances.
quick_plan() { # processors
    shared "$1" workers memory 1 0
    shared "$1" shards strict 1 1
    shared "$1" shards strict 2 2
}

# The processors that this process may use, those of one core together.
processors() {
    local cpu core
    allowed_processors | while read -r cpu; do
        core=$(cat "/sys/devices/system/cpu/cpu$cpu/topology/thread_siblings_list" 2>/dev/null || echo "$cpu")
        printf '%s\t%s\n' "${core%%[,-]*}" "$cpu"
    done | sort -n | cut -f 2
}

# Expands a list such as 0-3,8.
allowed_processors() {
    awk '$1 == "Cpus_allowed_list:" {
        count = split($2, ranges, ",")
        for (i = 1; i <= count; i++) {
            split(ranges[i], ends, "-")
            for (cpu = ends[1]; cpu <= (ends[2] == "" ? ends[1] : ends[2]); cpu++) print cpu
        }
    }' /proc/self/status
}
