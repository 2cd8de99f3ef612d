#!/bin/bash
# Local stand-ins for the public images that docker/ names, for machines that reach Debian's packages but no
# container registry. Where images can be pulled there is no need for it. Images that exist are left alone.
#
#   docker/images.sh          what the fleet needs: debian, redis, haproxy
#   docker/images.sh --rust   also the build image of the multi-stage Dockerfile
#
# Starts a Docker engine only if none answers. Needs root when something has to be installed.
set -euo pipefail
cd "$(dirname "$0")"
export DOCKER_BUILDKIT=0 # the legacy builder never asks a registry about an image that is here

log() { echo "images: $*"; }
install() {
  log "installing $*"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}
have() { docker image inspect "$1" >/dev/null 2>&1; }
# Runs a build quietly; shows what it said only if it failed.
quietly() {
  local out
  out=$(mktemp)
  if "$@" >"$out" 2>&1; then rm -f "$out"; else
    tail -40 "$out" >&2
    rm -f "$out"
    return 1
  fi
}

engine() {
  if ! command -v docker >/dev/null || ! { command -v docker-compose || docker compose version; } >/dev/null 2>&1; then
    install docker.io docker-compose iptables
  fi
  docker info >/dev/null 2>&1 && return
  command -v dockerd >/dev/null || install docker.io iptables
  local state=${TIDEGATE_DOCKERD_STATE:-/tmp/tidegate-dockerd}
  mkdir -p "$state"
  log "no Docker engine answers: starting one (pid in $state/pid)"
  setsid nohup dockerd >"$state/log" 2>&1 </dev/null &
  echo $! >"$state/pid"
  for _ in $(seq 150); do
    docker info >/dev/null 2>&1 && return
    sleep 0.2
  done
  tail -20 "$state/log" >&2
  return 1
}

debian() {
  have debian:bookworm-slim && return
  command -v mmdebstrap >/dev/null || install mmdebstrap
  local dir
  dir=$(mktemp -d)
  quietly ./standins/debian.sh "$dir/root.tar"
  docker import -c 'CMD ["bash"]' "$dir/root.tar" debian:bookworm-slim >/dev/null
  rm -rf "$dir"
}

standin() { have "$2" || quietly docker build -q --force-rm -t "$2" "standins/$1"; }

# The host's own toolchain in an image, with the certificates that this machine trusts besides Debian's.
rust() {
  have rust:1-bookworm && return
  local dir
  dir=$(mktemp -d)
  mkdir "$dir/ca"
  cp -L /usr/local/share/ca-certificates/*.crt "$dir/ca/" 2>/dev/null || :
  tar -ch --transform 's,^\./\(bin\|lib\),toolchain/\1,' \
    -C "$(rustc --print sysroot)" ./bin ./lib -C "$dir" ca -C "$PWD/standins/rust" Dockerfile |
    quietly docker build -q --force-rm -t rust:1-bookworm -
  rm -rf "$dir"
}

timed() {
  local from=$SECONDS
  "$@"
  log "$* ($((SECONDS - from)) s)"
}

timed engine
timed debian
timed standin redis redis:7.0
timed standin haproxy haproxy:2.6
if [ "${1:-}" = --rust ]; then timed rust; fi
