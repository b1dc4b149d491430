#!/usr/bin/env bash
# Runs every fault at full length against a release build, and writes tests/faults/RESULTS.md. Nothing else should run
# on the machine. FAULTS_ONLY=silent,killed runs some of them, and writes nothing; FAULTS_SEED and FAULTS_MINUTES are
# those of the random one.
set -euo pipefail
cd "$(dirname "$0")/../.."

cargo test --locked --release --test integration -- --ignored --exact faults::table::table --nocapture --test-threads 1
