#!/bin/sh
# scripts/deps.sh PROGRAM...: installs what is missing from Debian's packages; says nothing where all is there.
# Without root and sudo it prints the one line to run, and fails.
set -eu

package() { # the package a program is in
  case "$1" in
    redis-cli | redis-server) echo redis-server ;;
    luacheck) echo lua-check ;;
    python3) echo python3 python3-venv ;;
    *) echo "$1" ;;
  esac
}

missing=
for program in "$@"; do
  # Valkey is as good as Redis.
  if [ "$program" = redis-server ] && command -v valkey-server >/dev/null; then continue; fi
  command -v "$program" >/dev/null || missing="$missing $(package "$program")"
done
[ -n "$missing" ] || exit 0

sudo=
if [ "$(id -u)" != 0 ]; then
  if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo=sudo; else
    echo "missing:$missing. Run once: sudo apt-get update && sudo apt-get install -y$missing" >&2
    exit 1
  fi
fi
command -v apt-get >/dev/null || {
  echo "missing:$missing. There is no apt-get here: install it with this system's own package manager." >&2
  exit 1
}
echo "installing$missing" >&2
$sudo apt-get update -qq
# shellcheck disable=SC2086 # a list of packages
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
