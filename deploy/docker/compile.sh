#!/bin/sh
# Builds the program of the image with the Cargo profile `dist` and profile-guided optimization (PGO, see
# docs/adr/0018-profile-guided-optimization.md), and lays out under ROOT all files of the image except those of its base.
#
# PGO builds an instrumented program, runs it under the load of train.sh, and builds the program again with the merged profile. It
# needs redis-server, redis-cli, curl, and llvm-profdata: `rustup component add llvm-tools`, or Debian's package llvm-22.
# PROFILE_GUIDED=no builds without PGO, in less than half the time.
#
# usage: compile.sh ROOT
set -eu

fail() {
    echo "compile.sh: $*" >&2
    exit 1
}

here=$(dirname "$0")
host=$(rustc -vV | sed -n 's/^host: //p')
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")

# Linked statically, the program needs nothing from its base: since 2.34, glibc resolves names by files and DNS without
# further libraries. --target keeps the flags away from build scripts and procedural macros.
build() { # directory [flag]
    CARGO_ENCODED_RUSTFLAGS=$(printf '%s' '-Ctarget-feature=+crt-static' ${2:+"$(printf '\037%s' "$2")"}) \
        CARGO_PROFILE_DIST_STRIP=symbols CARGO_PROFILE_DIST_DEBUG=none \
        cargo build --locked --profile dist --bin tollgate --target "$host" --target-dir "$1"
}

# The llvm-profdata of the compiler's version of LLVM.
llvm_profdata() {
    major=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
    for tool in "$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata" "llvm-profdata-$major"; do
        if command -v "$tool"; then return; fi
    done
    fail "llvm-profdata of LLVM $major is missing; install it by \`rustup component add llvm-tools\` or as Debian's" \
        "llvm-$major, or set PROFILE_GUIDED=no to build without PGO"
}

# Builds with the profile of this source, which is recorded once.
build_with_pgo() {
    merge=$(llvm_profdata)
    for tool in redis-server redis-cli curl; do
        command -v "$tool" >/dev/null || fail "$tool is missing; install it, or set PROFILE_GUIDED=no to build without PGO"
    done
    profiles=$target/$host/profiles
    instrumented=$target/instrumented/$host/dist/tollgate
    build "$target/instrumented" "-Cprofile-generate=$profiles/raw"
    # By what determines it: Cargo builds anew with other flags, but does not look into the files that they name.
    profile=$profiles/$(cat "$instrumented" "$here/train.sh" "$here/training/rules.yaml" | sha256sum | cut -c 1-16)
    if [ ! -e "$profile" ]; then
        rm -rf "$profiles" "$target/optimized"
        cargo build --locked --release --package tollgate-load --target-dir "$target"
        sh "$here/train.sh" "$instrumented" "$target/release/tollgate-load"
        "$merge" merge --output="$profiles/merged" "$profiles/raw"
        mv "$profiles/merged" "$profile"
    fi
    build "$target/optimized" "-Cprofile-use=$profile"
}

case ${PROFILE_GUIDED-yes} in
    yes)
        build_with_pgo
        built=$target/optimized
        ;;
    no)
        build "$target"
        built=$target
        ;;
    *) fail "PROFILE_GUIDED is \`$PROFILE_GUIDED\`; expected yes or no" ;;
esac
sh "$here/layout.sh" "$built/$host/dist/tollgate" "$1"
