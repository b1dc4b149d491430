#!/usr/bin/env bash
# Publishes the release with its notes and all files in OUT.
#
# usage: publish.sh VERSION OUT
set -euo pipefail

version=$1 out=$2
scripts=$(cd "$(dirname "$0")" && pwd)
notes=$(mktemp)
trap 'rm -f "$notes"' EXIT
"$scripts/notes.sh" "$version" >"$notes"
cat >>"$notes" <<END

### Verification

\`\`\`sh
cosign verify --certificate-oidc-issuer https://token.actions.githubusercontent.com \\
  --certificate-identity "https://github.com/$GITHUB_REPOSITORY/.github/workflows/release.yaml@refs/tags/v$version" \\
  $IMAGE:$version
cosign verify-blob --certificate-oidc-issuer https://token.actions.githubusercontent.com \\
  --certificate-identity "https://github.com/$GITHUB_REPOSITORY/.github/workflows/release.yaml@refs/tags/v$version" \\
  --bundle SHA256SUMS.sigstore.json SHA256SUMS && sha256sum --check SHA256SUMS
gh attestation verify tollgate-$version-linux-amd64.tar.gz --repo $GITHUB_REPOSITORY
\`\`\`
END
flags=()
[[ $version != *-* ]] || flags+=(--prerelease)
gh release create "v$version" --verify-tag --title "tollgate $version" --notes-file "$notes" "${flags[@]}" "$out"/*
