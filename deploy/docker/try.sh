#!/bin/sh
# Runs the program of an unpacked image as Kubernetes does: as an unprivileged user, without capabilities, on a read-only
# file system. Waits until it is ready, sends the request in REQUEST (JSON), and stops it with SIGTERM. The program inherits
# the environment of this script.
#
# usage: try.sh ROOT HTTP_PORT COMMAND [ARGUMENT...]
set -eu

root=$1
port=$2
shift 2
# The user of the image, or one that the cluster chooses.
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
        echo "the program does not become ready" >&2
        exit 1
    fi
    sleep 0.1
done
# The user, the capabilities, and the mount options of the root.
echo "user $(awk '{print $1}' "/proc/$process/uid_map")"
grep '^CapEff' "/proc/$process/status"
awk '$5 == "/" {print "root " $6}' "/proc/$process/mountinfo"
# The response to a request.
if [ -n "${REQUEST-}" ]; then
    echo "answer $(curl -s -H 'Content-Type: application/json' --data "$REQUEST" "http://127.0.0.1:$port/json")"
fi
kill -TERM $process
wait $process
trap - EXIT
