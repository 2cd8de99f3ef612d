#!/bin/sh
# debian.sh OUT.tar: the root file system of Debian 12 without documentation, from this host's own package sources.
# What the public "slim" image holds, as near as matters here: the essential packages, apt, and a policy that no
# package may start a service.
set -eu
sources=
for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
  if [ -s "$file" ]; then sources="$sources $file"; fi
done
# The hook gives the merged /usr directly; without it a package that brings all of perl would do so.
# shellcheck disable=SC2086 # one argument per source file
exec mmdebstrap --variant=minbase --format=tar \
  --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr --include=usr-is-merged \
  --dpkgopt=force-unsafe-io \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/lintian/*' \
  --aptopt='Acquire::Languages "none"' --aptopt='Acquire::GzipIndexes "true"' \
  --customize-hook='printf "#!/bin/sh\nexit 101\n" >"$1/usr/sbin/policy-rc.d"; chmod +x "$1/usr/sbin/policy-rc.d"' \
  --customize-hook='rm -f "$1/etc/hostname"; : >"$1/etc/resolv.conf"' \
  bookworm "$1" $sources
