#!/usr/bin/env bash
# Builds the program of the image into a directory, and runs it.
#
# usage: pgo.sh DIRECTORY
set -euo pipefail
cd "$(dirname "$0")/../.."

rustup component add llvm-tools
sh deploy/docker/compile.sh "$1"
"$1/usr/bin/tollgate" --version
