#!/usr/bin/env bash
# Makes a Debian package of a program: with its service, default rules, manual pages and completions.
#
# usage: build.sh PROGRAM VERSION ARCH OUT
set -euo pipefail

program=$(realpath "$1") version=$2 arch=$3
mkdir -p "$4"
out=$(realpath "$4")
cd "$(dirname "$0")/../.."
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
umask 022

install -D -m 755 "$program" "$root/usr/bin/tollgate"
install -D -m 644 deploy/debian/tollgate.service "$root/lib/systemd/system/tollgate.service"
install -D -m 644 deploy/debian/default "$root/etc/default/tollgate"
install -D -m 644 -t "$root/etc/tollgate/rules" config/default/*.yaml
install -D -m 644 LICENSE "$root/usr/share/doc/tollgate/copyright"
mkdir -p "$root/usr/share/tollgate"
"$program" schema >"$root/usr/share/tollgate/rules.schema.json"
mkdir -p "$root/usr/share/man/man1"
"$program" man "$root/usr/share/man/man1" >/dev/null
find "$root/usr/share/man" -name '*.1' -exec gzip -n9 {} +
completions() { # shell path
    mkdir -p "$root/usr/share/$(dirname "$2")"
    "$program" completions "$1" >"$root/usr/share/$2"
}
completions bash bash-completion/completions/tollgate
completions zsh zsh/vendor-completions/_tollgate
completions fish fish/vendor_completions.d/tollgate.fish

mkdir "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<END
Package: tollgate
Version: ${version//-/\~}
Architecture: $arch
Maintainer: The tollgate authors <tollgate@users.noreply.github.com>
Section: net
Priority: optional
Homepage: https://github.com/tollgate-rs/tollgate
Installed-Size: $(du -sk "$root" | cut -f1)
Suggests: redis-server (>= 5:6.2)
Description: rate-limit service for Envoy and Istio
 Limits the rate of requests over all gateways, by rules in YAML and counters
 in Redis or in memory. Takes the place of envoyproxy/ratelimit.
END
(cd "$root" && find etc -type f -printf '/%p\n' | sort) >"$root/DEBIAN/conffiles"
cat >"$root/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # A new version of a service that runs takes its place; the first one is started by the administrator.
    systemctl try-restart tollgate.service
fi
END
cat >"$root/DEBIAN/prerm" <<'END'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now tollgate.service
fi
END
chmod 755 "$root/DEBIAN/postinst" "$root/DEBIAN/prerm"
# The same bytes for the same files.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)} \
    dpkg-deb --root-owner-group -Z"${COMPRESSION:-xz}" --build "$root" "$out/tollgate_${version//-/\~}_$arch.deb" >/dev/null
