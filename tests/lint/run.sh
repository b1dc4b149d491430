#!/usr/bin/env bash
# Lints everything but Rust: shell, Lua, JavaScript, Python, Markdown with its links, workflows, spelling, and subjects of
# commits.
# `tests/run.sh install` installs the tools. All linters run before the first failure is reported.
set -euo pipefail
cd "$(dirname "$0")/../.."

bin=target/lint/bin
failed=()

lint() {
    local name=$1
    shift
    "$@" || failed+=("$name")
}

# Replaces the names of numbers, as the program does before it loads a script.
with_numbers() {
    # shellcheck disable=SC2016 # The quotes of the table.
    local rows='s/^\| `([A-Z_]+)` \| ([0-9]+) \| .*/s,\\b\1\\b,\2,g/p'
    sed -f <(sed -nE "$rows" docs/internals/redis-protocol-and-lua.md)
}

# Redis composes the decision script of these parts, in the order that the program names them; for commands on several
# slots, after the first part of these.
decision_script() { # first part, or nothing
    local parts
    parts=$(grep -rhoE 'lua/decide/[a-z_]+\.lua"' --include=mod.rs src crates | tr -d '"')
    [ "$(wc -w <<<"$parts")" = "$(find lua/decide -name '*.lua' | wc -l)" ] || return 1
    # shellcheck disable=SC2046 # One word a path.
    cat ${1:+"lua/decide/$1.lua"} $(grep -v _slot <<<"$parts") | with_numbers
}

# The script of loans shares parts of it, and does not use all that they define.
loan_script() {
    local parts
    parts=$(grep -ohE 'lua/(decide|loans)/[a-z_]+\.lua"' crates/store/src/redis/auxiliary_scripts.rs | tr -d '"')
    # shellcheck disable=SC2086 # One word a path.
    cat $parts | with_numbers
}

# Scripts of the control plane that stand in a folder of their own.
control_script() { # folder
    local parts
    parts=$(sed -n "/^pub const ${1^^}_SCRIPT:/,/^);/p" crates/control/src/redis/script_client.rs | grep -oE 'lua/[a-z_/]+\.lua')
    [ "$(grep -c "^lua/$1/" <<<"$parts")" = "$(find "lua/$1" -name '*.lua' | wc -l)" ] || return 1
    # shellcheck disable=SC2086 # One word a path.
    cat $parts
}

lua() {
    loan_script | luacheck --config tests/lint/luacheckrc --filename lua/loans --quiet \
        --ignore 212 311 421 431 432 221 '211/.*ban_records' '231/half_written' -- - &&
        decision_script | luacheck --config tests/lint/luacheckrc --filename lua/decide --quiet - &&
        decision_script across_slots | luacheck --config tests/lint/luacheckrc --filename lua/decide --quiet - &&
        control_script control | luacheck --config tests/lint/luacheckrc --filename lua/control --quiet - &&
        control_script book | luacheck --config tests/lint/luacheckrc --filename lua/book --quiet - &&
        luacheck --config tests/lint/luacheckrc --quiet lua/*.lua
}

# The crate that is published has complete metadata, and no dependency on those that are not.
package() {
    cargo package --locked --package tollgate-core --no-verify --allow-dirty --quiet 2>&1 | (! grep .)
}

mapfile -t scripts < <(git ls-files '*.sh' .ci/run)
lint shellcheck "$bin/shellcheck" "${scripts[@]}"
lint luacheck lua
lint oxlint "$bin/oxlint" --config tests/lint/oxlint.json --deny-warnings --quiet crates/admin/src
lint ruff "$bin/ruff" check --quiet --no-cache --config tests/lint/ruff.toml .
lint rumdl "$bin/rumdl" check --config tests/lint/rumdl.toml --no-cache --quiet .
lint actionlint target/actionlint/actionlint -shellcheck "$bin/shellcheck" -pyflakes ""
lint typos "$bin/typos" --config tests/lint/typos.toml --format brief
lint commits tests/lint/commits.sh
lint package package

if [ "${#failed[@]}" -gt 0 ]; then
    echo "lints failed: ${failed[*]}"
    exit 1
fi
