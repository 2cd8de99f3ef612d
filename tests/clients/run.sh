#!/bin/bash
# The official Python clients, curl and HAProxy against a fleet of the built binary.
#   tests/clients/run.sh [unittest options]       TIDEGATE_BIN: the binary (target/debug/tidegate)
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=target/clients/venv
if ! cmp -s tests/clients/requirements.txt "$venv/requirements.txt"; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check -r tests/clients/requirements.txt
  cp tests/clients/requirements.txt "$venv/requirements.txt"
fi
export TIDEGATE_BIN=${TIDEGATE_BIN:-$PWD/target/debug/tidegate}
cd tests/clients
[ $# -gt 0 ] || set -- discover -p 'test_*.py'
exec ../../"$venv/bin/python" -B -m unittest "$@"
