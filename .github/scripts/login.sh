#!/usr/bin/env bash
# Logs docker, helm and cosign in to the registry with the token in the variable REGISTRY_TOKEN.
#
# usage: REGISTRY_TOKEN=TOKEN login.sh REGISTRY USER
set -euo pipefail

for tool in docker "helm registry" cosign; do
    # shellcheck disable=SC2086 # The words of a command.
    if command -v ${tool%% *} >/dev/null; then
        $tool login "$1" --username "$2" --password-stdin <<<"$REGISTRY_TOKEN"
    fi
done
