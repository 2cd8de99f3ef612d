#!/bin/bash
# Syntax of every shell script, and shellcheck where it is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t scripts < <(git ls-files | xargs grep -lE '^#!/bin/(ba)?sh' --)
for script in "${scripts[@]}"; do
  case "$(head -1 "$script")" in *bash) bash -n "$script" ;; *) sh -n "$script" ;; esac
done
if command -v shellcheck >/dev/null; then shellcheck --severity=warning "${scripts[@]}"; fi
echo "${#scripts[@]} shell scripts"
