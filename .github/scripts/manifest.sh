#!/usr/bin/env bash
# Joins the images of all architectures under the tags VERSION and X.Y, and prints the digest. A pre-release has the first
# tag alone.
#
# usage: IMAGE=NAME manifest.sh VERSION DIGESTS
set -euo pipefail

version=$1
tags=(--tag "$IMAGE:$version")
[[ $version == *-* ]] || tags+=(--tag "$IMAGE:${version%.*}")
sources=()
for arch in amd64 arm64; do
    digest=$(cat "$2/$arch")
    [[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || {
        echo "no digest of $arch" >&2
        exit 1
    }
    sources+=("$IMAGE@$digest")
done
docker buildx imagetools create "${tags[@]}" "${sources[@]}" >&2
docker buildx imagetools inspect "$IMAGE:$version" --format '{{.Manifest.Digest}}'
