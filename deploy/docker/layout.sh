#!/bin/sh
# Lays out under ROOT what the image has besides its base.
#
# usage: layout.sh PROGRAM ROOT
set -eu

# Whoever runs it may read it: which user that is, is a cluster's choice, and not the umask of who builds.
install -d -m 755 "$2/usr/bin" "$2/bin" "$2/config/default"
install -m 755 "$1" "$2/usr/bin/tollgate"
# Where envoyproxy/ratelimit has its program: deployments of it, and those of Envoy Gateway, name it as their command. An
# absolute link, since /bin may be one itself.
ln -sfn /usr/bin/tollgate "$2/bin/ratelimit"
# Something to serve where nothing is mounted: what --config is by default, seen from /. No variable of the image says so,
# or those of the reference (RUNTIME_ROOT, ...), which count less than tollgate's own, would never count here.
install -m 644 config/default/*.yaml "$2/config/default"
