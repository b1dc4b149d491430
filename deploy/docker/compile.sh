#!/bin/sh
# Builds the program with the profile `dist`, and lays out under ROOT all files of the image except those of its base.
#
# usage: compile.sh ROOT
set -eu

host=$(rustc -vV | sed -n 's/^host: //p')
# Linked statically, the program needs nothing from its base: since 2.34, glibc resolves names by files and DNS without
# further libraries. --target keeps the flags away from build scripts and procedural macros.
RUSTFLAGS="-C target-feature=+crt-static" CARGO_PROFILE_DIST_STRIP=symbols CARGO_PROFILE_DIST_DEBUG=none \
    cargo build --locked --profile dist --bin tollgate --target "$host"

sh "$(dirname "$0")/layout.sh" "${CARGO_TARGET_DIR:-target}/$host/dist/tollgate" "$1"
