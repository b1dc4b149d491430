#!/usr/bin/env bash
# Packages the chart with the image of the release, by its digest, and checks the package: OUT/tollgate-VERSION.tgz.
#
# usage: IMAGE=NAME chart.sh VERSION DIGEST OUT
set -euo pipefail
cd "$(dirname "$0")/../.."

version=$1 digest=$2 out=$3
helm=${HELM:-helm}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The files of the chart are links into deploy/ and config/.
cp -RL deploy/helm/tollgate "$work/tollgate"
sed -i -e "s|^  repository: .*|  repository: $IMAGE|" -e "s|^  digest: \"\"|  digest: $digest|" "$work/tollgate/values.yaml"
"$helm" lint --strict --quiet "$work/tollgate" --set store.kind=memory
"$helm" package "$work/tollgate" --version "$version" --app-version "$version" --destination "$out"
"$helm" template tollgate "$out/tollgate-$version.tgz" --set store.kind=memory | grep -qxF "        image: $IMAGE@$digest"
