#!/bin/sh
# Starts a Redis or a sentinel: `start.sh redis` or `start.sh sentinel`. SELF is its own address (host:port), SENTINELS are
# all sentinels, FIRST is the Redis that is the master while no sentinel knows one. DATA is the directory for its files.
set -eu

self_host=${SELF%:*}
self_port=${SELF##*:}
master_host=${FIRST%:*}
master_port=${FIRST##*:}
for sentinel in $SENTINELS; do
    known=$(timeout 2 redis-cli -h "${sentinel%:*}" -p "${sentinel##*:}" --raw \
        sentinel get-master-addr-by-name tollgate 2>/dev/null) || continue
    if [ -n "$known" ]; then
        master_host=$(echo "$known" | sed -n 1p)
        master_port=$(echo "$known" | sed -n 2p)
        break
    fi
done

case $1 in
redis)
    # A master that is cut off from its replicas takes no more charges, which a failover would lose: within 5 seconds.
    set -- --port "$self_port" --dir "$DATA" --protected-mode no --save "" --appendonly no \
        --min-replicas-to-write 1 --min-replicas-max-lag 3 \
        --maxmemory 256mb --maxmemory-policy noeviction \
        --replica-announce-ip "$self_host" --replica-announce-port "$self_port"
    if [ "$master_host:$master_port" != "$SELF" ]; then
        set -- "$@" --replicaof "$master_host $master_port"
    fi
    exec redis-server "$@"
    ;;
sentinel)
    # Names instead of addresses, since the addresses of pods change.
    cat >"$DATA/sentinel.conf" <<CONF
port $self_port
dir $DATA
protected-mode no
sentinel resolve-hostnames yes
sentinel announce-hostnames yes
sentinel announce-ip $self_host
sentinel announce-port $self_port
sentinel monitor tollgate $master_host $master_port 2
sentinel down-after-milliseconds tollgate 2000
sentinel failover-timeout tollgate 5000
CONF
    exec redis-server "$DATA/sentinel.conf" --sentinel
    ;;
esac
