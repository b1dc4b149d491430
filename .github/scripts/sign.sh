#!/usr/bin/env bash
# Signs the release by the identity of the workflow (cosign, keyless): the image and the chart in the registry, each
# architecture's SBOM, and the checksums of all files in OUT.
#
# usage: IMAGE=NAME CHARTS=NAME sign.sh VERSION IMAGE_DIGEST CHART_DIGEST DIGESTS OUT
set -euo pipefail

# shellcheck disable=SC2153 # Variables of the workflow.
version=$1 image=$IMAGE@$2 chart=$CHARTS/tollgate@$3 digests=$4 out=$5
cosign sign --yes --recursive "$image"
for arch in amd64 arm64; do
    cosign attest --yes --type cyclonedx --predicate "$out/tollgate-$version-linux-$arch.cdx.json" \
        "$IMAGE@$(cat "$digests/$arch")"
done
cosign sign --yes "$chart"
cd "$out"
# All but earlier results, in order of names.
find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' -printf '%f\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS
cosign sign-blob --yes --bundle SHA256SUMS.sigstore.json SHA256SUMS
