#!/bin/bash
# The containers of docker/compose.yaml, with Compose v1 or v2.
#
#   docker/fleet.sh [sentinel|cluster] up        builds the image, starts all, waits until a request is answered
#   docker/fleet.sh [sentinel|cluster] down      stops all and removes what up made
#   docker/fleet.sh [sentinel|cluster] ps|logs…  any other Compose command
#   docker/fleet.sh image [release|debug]        builds the image only: multi-stage, or around the host's own build
#
# TIDEGATE_PROJECT names the Compose project (tidegate), TIDEGATE_IMAGE the image (tidegate:dev);
# TIDEGATE_PREBUILT=debug or release makes `up` take the host's build instead of building in a container.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
image=${TIDEGATE_IMAGE:-tidegate:dev}

compose() {
  if docker compose version >/dev/null 2>&1; then set -- docker compose "$@"; else set -- docker-compose "$@"; fi
  TIDEGATE_IMAGE=$image "$@"
}

build() {
  case "${1:-}" in
    debug | release)
      tar -c -C "$root" docker/Dockerfile.prebuilt docker/healthcheck.sh -C "$root/target/$1" tidegate |
        docker build -q --force-rm -f docker/Dockerfile.prebuilt -t "$image" - 2>/dev/null
      ;;
    *) docker build --force-rm -f "$root/docker/Dockerfile" -t "$image" "$root" ;;
  esac
}

files=(-f "$root/docker/compose.yaml")
case "${1:-}" in
  sentinel | cluster)
    files+=(-f "$root/docker/compose.$1.yaml")
    shift
    ;;
esac
files+=(-p "${TIDEGATE_PROJECT:-tidegate}")

case "$*" in
  image*) build "${2:-}" ;;
  up)
    build "${TIDEGATE_PREBUILT:-}"
    compose "${files[@]}" up -d --remove-orphans
    body='{"model":"llama","messages":[{"role":"user","content":"hello"}],"max_tokens":1}'
    for _ in $(seq 120); do
      status=$(curl -s -o /dev/null -m 5 -w '%{http_code}' -H 'content-type: application/json' -d "$body" \
        http://127.0.0.1:18000/v1/chat/completions || :)
      if [ "$status" = 200 ]; then
        echo "fleet: up at http://127.0.0.1:18000"
        exit 0
      fi
      sleep 0.5
    done
    echo "fleet: no answer in 60 s (last status ${status:-none}); see docker/fleet.sh logs" >&2
    exit 1
    ;;
  down) compose "${files[@]}" down -v -t 5 --remove-orphans ;;
  '') sed -n '2,11s/^# \{0,1\}//p' "$0" ;;
  *) compose "${files[@]}" "$@" ;;
esac
