#!/bin/sh
# Creates one cluster of the nodes in NODES (host:port, the masters first), with a replica for each master; does nothing
# if they already form one.
set -eu

cli() {
    node=$1
    shift
    redis-cli -h "${node%:*}" -p "${node##*:}" "$@"
}

addresses=
for node in $NODES; do
    until [ "$(cli "$node" ping 2>/dev/null)" = PONG ]; do
        echo "waiting for $node"
        sleep 1
    done
    # redis-cli announces nodes by address.
    addresses="$addresses $(getent ahostsv4 "${node%:*}" | head -n 1 | cut -d ' ' -f 1):${node##*:}"
done

if cli "${NODES%% *}" cluster info | grep -q '^cluster_slots_assigned:16384'; then
    # Its nodes may have to rediscover each other: see start.sh.
    for node in $NODES; do
        until cli "$node" cluster info | grep -q '^cluster_state:ok'; do
            echo "waiting for the cluster at $node"
            sleep 1
        done
    done
    echo "there is a cluster"
    exit
fi
# shellcheck disable=SC2086 # One word each.
redis-cli --cluster create $addresses --cluster-replicas 1 --cluster-yes
