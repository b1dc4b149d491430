#!/usr/bin/env bash
# Runs the steps of deploy/docker/Dockerfile for the checked-out commit without a container engine: leaves the image's files
# in target/image/root, prints their size, and runs them. The base of about 2 MB is not included. compile.sh states the tools
# that it needs; PROFILE_GUIDED=no builds without profile-guided optimization, which takes most of the time.
set -euo pipefail
cd "$(dirname "$0")/../.."

root=$PWD/target/image/root
port=${1:-18080}
sources=$(mktemp -d)
trap 'rm -rf "$sources"' EXIT
# The paths that .dockerignore includes.
mapfile -t sent < <(sed -n 's/^!//p' .dockerignore)
# For any owner of the checkout. Unpacked sources have no commit and are taken as they are.
if git -c safe.directory='*' rev-parse --quiet --verify HEAD >/dev/null 2>&1; then
    git -c safe.directory='*' archive HEAD -- "${sent[@]}"
else
    tar -c "${sent[@]}"
fi | tar -x -C "$sources"
rm -rf "$root"
(cd "$sources" && CARGO_TARGET_DIR="$OLDPWD/target/image/build" sh deploy/docker/compile.sh "$root")
if ldd "$root/usr/bin/tollgate" 2>/dev/null | grep '=>'; then
    echo "the program needs shared libraries that the image does not have" >&2
    exit 1
fi
size=$(du -sb --apparent-size "$root" | cut -f 1)
echo "$size bytes"
# With its base, the image has to stay below 36 MB.
if [ "$size" -gt 34000000 ]; then
    echo "the image is too large" >&2
    exit 1
fi
for name in /usr/bin/tollgate /bin/ratelimit; do
    sh deploy/docker/try.sh "$root" "$port" "$name" --store memory --http-address "127.0.0.1:$port" \
        --grpc-address 127.0.0.1:0 --admin-address off
done
echo "the image runs"
