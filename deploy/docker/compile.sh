#!/bin/sh
# Builds the program as the image has it, and lays out under ROOT what the image has besides its base.
#
# usage: compile.sh ROOT
set -eu

host=$(rustc -vV | sed -n 's/^host: //p')
# Linked statically, it needs nothing of its base: since 2.34, glibc resolves names by files and DNS without a library
# beside it. --target keeps the flags from what runs during the build.
RUSTFLAGS="-C target-feature=+crt-static" CARGO_PROFILE_RELEASE_STRIP=symbols CARGO_PROFILE_RELEASE_DEBUG=none \
    cargo build --locked --release --bin tollgate --target "$host"

sh "$(dirname "$0")/layout.sh" "${CARGO_TARGET_DIR:-target}/$host/release/tollgate" "$1"
