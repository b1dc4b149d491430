#!/bin/sh
# Lays out under ROOT the files of the image except those of its base.
#
# usage: layout.sh PROGRAM ROOT
set -eu

# Readable by any user: the cluster chooses the user, and the umask of the build must not matter.
install -d -m 755 "$2/usr/bin" "$2/bin" "$2/config/default"
install -m 755 "$1" "$2/usr/bin/tollgate"
# The path of the program in envoyproxy/ratelimit's image: its deployments, and those of Envoy Gateway, name it as their
# command. An absolute link, since /bin may itself be a link.
ln -sfn /usr/bin/tollgate "$2/bin/ratelimit"
# Default rules where nothing is mounted: the default of --config, relative to /. The image sets no variable for this: it
# would take precedence over those of envoyproxy/ratelimit (RUNTIME_ROOT, ...).
install -m 644 config/default/*.yaml "$2/config/default"
