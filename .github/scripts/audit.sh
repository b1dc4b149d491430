#!/usr/bin/env bash
# Checks the dependencies of the program and of the fuzz targets for advisories, licences and sources.
set -euo pipefail
cd "$(dirname "$0")/../.."

command -v cargo-deny >/dev/null || cargo install --locked --quiet --debug cargo-deny
cargo deny --log-level warn --locked check
# Without --locked: fuzz/Cargo.lock follows the program's dependencies when it is built.
cargo deny --log-level warn --config deny.toml --manifest-path fuzz/Cargo.toml check advisories sources
