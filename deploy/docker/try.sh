#!/bin/sh
# Runs the program of an unpacked image as Kubernetes does: as user 65532, without capabilities, on a file system that
# cannot be written to. Asks it whether it is ready, and tells it to stop.
#
# usage: try.sh ROOT HTTP_PORT [FLAG...]
set -eu

root=$1
port=$2
shift 2
# shellcheck disable=SC2016 # Expanded inside.
TOLLGATE_CONFIG=/etc/tollgate/rules unshare --user --map-root-user --mount sh -euc '
    root=$1
    shift
    mount --bind "$root" "$root"
    mount -o remount,bind,ro "$root"
    exec unshare --user --map-user=65532 --map-group=65532 --root="$root" --wd=/ /usr/bin/tollgate "$@"
' sh "$root" --http-address "127.0.0.1:$port" --grpc-address 127.0.0.1:0 --admin-address off "$@" &
process=$!
trap 'kill -KILL $process 2>/dev/null || true' EXIT

tries=0
until [ "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/healthcheck")" = 200 ]; do
    tries=$((tries + 1))
    if [ $tries -gt 100 ] || ! kill -0 $process; then
        echo "it does not become ready" >&2
        exit 1
    fi
    sleep 0.1
done
# Its user, that it has no capabilities, and how its root is mounted.
echo "user $(awk '{print $1}' "/proc/$process/uid_map")"
grep '^CapEff' "/proc/$process/status"
awk '$5 == "/" {print "root " $6}' "/proc/$process/mountinfo"
kill -TERM $process
wait $process
trap - EXIT
