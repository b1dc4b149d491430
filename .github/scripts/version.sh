#!/usr/bin/env bash
# Prints the version that a tag releases, and fails unless the program, the chart, the image and the changelog have it.
#
# usage: version.sh vX.Y.Z
set -euo pipefail
cd "${ROOT:-$(dirname "$0")/../..}"

version=${1#v}
fail() {
    echo "$1" >&2
    exit 1
}
[[ $1 == v* && $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || fail "$1 is not a version; expected vX.Y.Z"
grep -qx "version = \"$version\"" Cargo.toml || fail "Cargo.toml has another version than $version"
for field in version appVersion; do
    grep -qx "$field: $version" deploy/helm/tollgate/Chart.yaml || fail "Chart.yaml has another $field than $version"
done
grep -q "image.version=\"$version\"" deploy/docker/Dockerfile || fail "the Dockerfile has another version than $version"
grep -q "^## \[$version\]" CHANGELOG.md || fail "CHANGELOG.md has no section [$version]"
# An image whose base is a tag may be another one tomorrow.
grep '^FROM ' deploy/docker/Dockerfile | grep -qvE '@sha256:[0-9a-f]{64}( |$)' && fail "a base image has no digest"
echo "$version"
