#!/bin/sh
# Starts a node of the cluster, and reintroduces the nodes in NODES (host:port) to each other: a restarted node has a new
# address, and when all restart at once, no node knows the address of another.
#
# usage: start.sh [FLAG OF REDIS...]
set -eu

port=${PORT:-6379}
# The address that is announced to the other nodes.
address=${ADDRESS:-$(hostname -i | cut -d ' ' -f 1)}

meet() {
    # $$ becomes the server (exec below).
    while sleep 5 && kill -0 $$ 2>/dev/null; do
        known=$(timeout 2 redis-cli -p "$port" cluster nodes 2>/dev/null) || continue
        # A node that knows no other is not part of a cluster yet; create.sh requires that.
        [ "$(echo "$known" | wc -l)" -gt 1 ] || continue
        for node in $NODES; do
            there=$(getent ahostsv4 "${node%:*}" | head -n 1 | cut -d ' ' -f 1)
            [ -n "$there" ] || continue
            case "$known" in
            *" $there:${node##*:}@"*) continue ;;
            esac
            # DNS may still return the address of a deleted pod, which a pod of another cluster may have now, and CLUSTER
            # MEET would merge the two clusters for good. Only nodes with a known id are met.
            id=$(timeout 2 redis-cli -h "$there" -p "${node##*:}" cluster myid 2>/dev/null) || continue
            case "$known" in
            *"${id:-nobody} "*) redis-cli -p "$port" cluster meet "$there" "${node##*:}" >/dev/null || true ;;
            esac
        done
    done
}
meet &
exec redis-server "$(dirname "$0")/redis.conf" --port "$port" --cluster-announce-ip "$address" "$@"
