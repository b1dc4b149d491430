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
            case "$known" in
            *" $there:${node##*:}@"*) ;;
            *) [ -z "$there" ] || redis-cli -p "$port" cluster meet "$there" "${node##*:}" >/dev/null || true ;;
            esac
        done
    done
}
meet &
exec redis-server "$(dirname "$0")/redis.conf" --port "$port" --cluster-announce-ip "$address" "$@"
