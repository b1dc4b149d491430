#!/bin/sh
# Starts a node of the cluster, and sees to it that the nodes in NODES (host:port) find each other again: who starts anew has
# another address, and where all do so at once, nobody knows where anybody is.
#
# usage: start.sh [FLAG OF REDIS...]
set -eu

port=${PORT:-6379}
# What the others are told.
address=${ADDRESS:-$(hostname -i | cut -d ' ' -f 1)}

meet() {
    # $$ is what becomes the server.
    while sleep 5 && kill -0 $$ 2>/dev/null; do
        known=$(timeout 2 redis-cli -p "$port" cluster nodes 2>/dev/null) || continue
        # Who knows nobody is part of no cluster yet; create.sh wants it so.
        [ "$(echo "$known" | wc -l)" -gt 1 ] || continue
        for node in $NODES; do
            there=$(getent ahostsv4 "${node%:*}" | head -n 1 | cut -d ' ' -f 1)
            [ -n "$there" ] || continue
            case "$known" in
            *" $there:${node##*:}@"*) continue ;;
            esac
            # DNS may still have the address of a pod that is gone, which another cluster's pod has by now: who is met
            # becomes one with this cluster, for ever. So nobody is whose id is not known.
            id=$(timeout 2 redis-cli -h "$there" -p "${node##*:}" cluster myid 2>/dev/null) || continue
            case "$known" in
            *"${id:-nobody} "*) redis-cli -p "$port" cluster meet "$there" "${node##*:}" >/dev/null || true ;;
            esac
        done
    done
}
meet &
exec redis-server "$(dirname "$0")/redis.conf" --port "$port" --cluster-announce-ip "$address" "$@"
