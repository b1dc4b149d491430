#!/bin/sh
# Runs the program of an unpacked image as Kubernetes does: as nobody, without capabilities, on a file system that cannot
# be written to. Asks it whether it is ready, and what is in ASK (JSON), and tells it to stop. Its variables are those of
# this script.
#
# usage: try.sh ROOT HTTP_PORT COMMAND [ARGUMENT...]
set -eu

root=$1
port=$2
shift 2
# What the image says, or what a cluster chooses.
USER_ID=${USER_ID:-65532}
GROUP_ID=${GROUP_ID:-65532}
export USER_ID GROUP_ID
# shellcheck disable=SC2016 # Expanded inside.
unshare --user --map-root-user --mount sh -euc '
    root=$1
    shift
    mount --bind "$root" "$root"
    mount -o remount,bind,ro "$root"
    exec unshare --user --map-user="$USER_ID" --map-group="$GROUP_ID" --root="$root" --wd=/ "$@"
' sh "$root" "$@" &
process=$!
trap 'kill -KILL $process 2>/dev/null || true' EXIT

tries=0
until [ "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/healthcheck")" = 200 ]; do
    tries=$((tries + 1))
    if [ $tries -gt 200 ] || ! kill -0 $process; then
        echo "it does not become ready" >&2
        exit 1
    fi
    sleep 0.1
done
# Its user, that it has no capabilities, and how its root is mounted.
echo "user $(awk '{print $1}' "/proc/$process/uid_map")"
grep '^CapEff' "/proc/$process/status"
awk '$5 == "/" {print "root " $6}' "/proc/$process/mountinfo"
# What it answers to a request.
if [ -n "${ASK-}" ]; then
    echo "answer $(curl -s --data "$ASK" "http://127.0.0.1:$port/json")"
fi
kill -TERM $process
wait $process
trap - EXIT
