#!/usr/bin/env bash
# Builds the image for the architecture of this machine, pushes it by its digest, and takes the program out of it, so that
# the archive and the Debian package have the very same one. Writes OUT/digests/ARCH, OUT/tollgate-VERSION-linux-ARCH.tar.gz and
# OUT/tollgate_VERSION_ARCH.deb.
#
# usage: IMAGE=NAME image.sh VERSION ARCH OUT
set -euo pipefail
cd "$(dirname "$0")/../.."

version=$1 arch=$2 out=$3
name=tollgate-$version-linux-$arch
mkdir -p "$out/digests" "$out/$name"
docker buildx build --file deploy/docker/Dockerfile --platform "linux/$arch" \
    --build-arg "REVISION=$(git rev-parse HEAD)" --provenance mode=max \
    --output "type=image,name=$IMAGE,push-by-digest=true,name-canonical=true,push=true" \
    --metadata-file "$out/metadata.json" .
digest=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["containerimage.digest"])' "$out/metadata.json")
printf '%s\n' "$digest" >"$out/digests/$arch"

container=$(docker create --platform "linux/$arch" "$IMAGE@$digest")
docker cp "$container:/usr/bin/tollgate" "$out/$name/tollgate"
docker rm "$container" >/dev/null
# It needs no library, and runs.
if ldd "$out/$name/tollgate" 2>/dev/null | grep '=>'; then
    echo "the program needs shared libraries" >&2
    exit 1
fi
"$out/$name/tollgate" --version | grep -qF "$version"
deploy/debian/build.sh "$out/$name/tollgate" "$version" "$arch" "$out"
cp -r LICENSE README.md CHANGELOG.md config/default "$out/$name"
# The same bytes for the same files.
tar --sort=name --mtime="@$(git log -1 --format=%ct)" --owner=0 --group=0 --numeric-owner -C "$out" -c "$name" |
    gzip -n9 >"$out/$name.tar.gz"
rm -r "${out:?}/$name" "$out/metadata.json"
