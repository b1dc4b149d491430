#!/usr/bin/env bash
# Judges the files of deploy/istio by Istio's own validation, and applies them by its pilot library to proxies of a mesh, without
# Kubernetes. Needs Go, and a quarter of an hour the first time, in which Istio is built.
#   tests/deploy/istio_pilot/run.sh [ARGUMENTS OF go test]
set -euo pipefail
cd "$(dirname "$0")"
exec go test -count=1 -v "$@" ./...
