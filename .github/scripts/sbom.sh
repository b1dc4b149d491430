#!/usr/bin/env bash
# Writes the SBOM of one architecture's image and program: OUT/tollgate-VERSION-linux-ARCH.cdx.json.
#
# usage: IMAGE=NAME sbom.sh VERSION ARCH TARGET OUT
set -euo pipefail
cd "$(dirname "$0")/../.."

name=tollgate-$1-linux-$2 out=$4
tar -xzf "$out/$name.tar.gz" -C "$out" "$name/tollgate"
.github/scripts/sbom.py --target "$3" --image "$IMAGE@$(cat "$out/digests/$2")" --file "/usr/bin/tollgate=$out/$name/tollgate" \
    >"$out/$name.cdx.json"
rm -r "${out:?}/$name"
