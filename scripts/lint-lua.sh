#!/bin/bash
# Every script as Redis gets it (its includes put in place, each once) through luacheck.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/deps.sh luacheck
out=target/lua
rm -rf "$out"
mkdir -p "$out"

flatten() { # flatten FILE: the file with every `--- @include "x"` replaced by lua/include/x.lua, the first time
  local line name
  while IFS= read -r line || [ -n "$line" ]; do
    if [[ $line =~ ^---\ @include\ \"(.*)\"$ ]]; then
      name=${BASH_REMATCH[1]}
      if [[ $seen != *" $name "* ]]; then
        seen="$seen$name "
        flatten "lua/include/$name.lua"
      fi
    else printf '%s\n' "$line"; fi
  done <"$1"
}

for script in lua/*.lua; do
  seen=" "
  # luacheck does not know the shebang that tells Redis a script's flags.
  flatten "$script" | sed '1s/^#!.*//' >"$out/$(basename "$script")"
done
# An include brings more than its script uses (211, 241, 311) and names of its own (4..).
luacheck --no-color --std lua51 --read-globals redis KEYS ARGV cjson cmsgpack struct bit --no-max-line-length \
  --ignore 211 241 311 4[123]. --quiet "$out"
