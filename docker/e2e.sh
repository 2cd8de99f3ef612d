#!/bin/bash
# The fleet of compose.yaml, from outside: starts it, tries what an operator and a bad day would do to it, takes it down.
#
#   docker/e2e.sh                      all parts
#   docker/e2e.sh answers threshold …  only these (answers burst threshold frontend worker network redis rolling
#                                      sentinel cluster)
#
# TIDEGATE_PREBUILT=debug|release takes the host's build (else the image is built by docker/Dockerfile).
# Exit 0 only if every check held. Takes about three minutes.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export TIDEGATE_PROJECT=${TIDEGATE_PROJECT:-tidegate-e2e}
variant=
fleet() { docker/fleet.sh $variant "$@"; } # variant: nothing, sentinel or cluster
work=$(mktemp -d)
passed=0
failed=0
failures=()
part=start
lb=http://127.0.0.1:18000

cleanup() {
  jobs -p | xargs -r kill 2>/dev/null
  if [ "$failed" -gt 0 ]; then # what they said, for whoever looks into it
    mkdir -p target && fleet logs --no-color >target/e2e.log 2>&1
    echo "e2e: the containers' logs are in target/e2e.log"
  fi
  fleet down >/dev/null 2>&1
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

check() { # check NAME COMMAND...: one counted check
  local name=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
    echo "  ok    $name"
  else
    failed=$((failed + 1))
    failures+=("$part: $name")
    echo "  FAIL  $name"
  fi
}
within() { # within SECONDS COMMAND...: true as soon as the command is
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.2
  done
}
chat() { # chat BASE MAX_TOKENS [curl options]: one completion
  local base=$1 tokens=$2
  shift 2
  curl -s -m 60 -H 'content-type: application/json' "$@" "$base/v1/chat/completions" \
    -d "{\"model\":\"llama\",\"max_tokens\":$tokens,\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}"
}
status() { chat "$1" 1 -o /dev/null -w '%{http_code}'; }
is() { [ "$(status "$1")" = "$2" ]; }
answered() { case "$(status "$lb")" in 200 | 529) ;; *) return 1 ;; esac; }
every() { # every STATUS: all three frontends answer with it
  is http://127.0.0.1:18001 "$1" && is http://127.0.0.1:18002 "$1" && is http://127.0.0.1:18003 "$1"
}
reason() { chat "$1" 1 | grep -q "\"reason\": *\"$2\""; }
stream() { # stream BASE TOKENS: a streamed completion in the background
  curl -sN -m 90 -o /dev/null -H 'content-type: application/json' "$1/v1/chat/completions" \
    -d "{\"model\":\"llama\",\"stream\":true,\"max_tokens\":$2,\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}" &
}
redis() { docker exec "$(id redis)" redis-cli "$@"; }
id() { fleet ps -q "$1" 2>/dev/null; }
inflight() { redis HGET 'tidegate:{llama}:stats' inflight_total; }
idle() { [ "$(inflight)" = 0 ] && [ -z "$(redis HVALS 'tidegate:{llama}:inflight' | grep -vx 0)" ]; }
members() { [ "$(redis HLEN 'tidegate:{llama}:gate')" = "$1" ]; }
alive() { # alive N: N workers whose gate is open
  [ "$(redis HVALS 'tidegate:{llama}:gate' | grep -c '|[0-9]*||http')" = "$1" ]
}
healthy() { within 30 alive 3 && within 15 every 200; }
# Requests through HAProxy, six at a time, until `calm`; a line per answer in $work/answers.
pound() {
  rm -f "$work/stop" "$work/answers"
  pounders=()
  for _ in 1 2 3 4 5 6; do
    while [ ! -e "$work/stop" ]; do chat "$lb" 3 -o /dev/null -w '%{http_code} %{exitcode}\n' >>"$work/answers"; done &
    pounders+=($!)
  done
}
calm() {
  touch "$work/stop"
  wait "${pounders[@]}"
  echo "        $(sort "$work/answers" | uniq -c | tr -s ' \n' ' ')"
}
only() { [ "$(wc -l <"$work/answers")" -gt 20 ] && ! grep -qvE "^($1) 0$" "$work/answers"; }

part_answers() {
  check "three workers are open" within 20 alive 3
  check "every frontend answers 200" within 10 every 200
  check "HAProxy sees three frontends" within 10 eval \
    '[ "$(curl -s "http://127.0.0.1:18404/;csv" | grep -c "^tidegate,frontend-.*,UP,")" = 3 ]'
  check "a stream ends with [DONE]" eval \
    "curl -sN -m 20 -H 'content-type: application/json' $lb/v1/chat/completions -d '{\"model\":\"llama\",\"stream\":true,\"max_tokens\":5,\"messages\":[]}' | grep -q '^data: \[DONE\]'"
  # A young index answers 503: whoever serves the model may not have spoken yet.
  check "an unknown model is 404" within 10 eval \
    "[ \"\$(curl -s -o /dev/null -w '%{http_code}' -H 'content-type: application/json' $lb/v1/chat/completions -d '{\"model\":\"nobody\",\"messages\":[]}')\" = 404 ]"
  check "the containers are healthy" within 30 eval \
    '[ "$(docker ps --filter label=com.docker.compose.project=$TIDEGATE_PROJECT --filter health=healthy -q | wc -l)" = 10 ]'
  check "nothing runs as root" eval '[ "$(docker exec "$(id frontend-1)" id -u)" = 10001 ]'
}

part_burst() { # room for 3 x (4 + 2): of 60 at once exactly 18 are taken, whichever frontend they meet
  check "idle before" within 15 idle
  seq 60 | xargs -P 60 -I{} curl -s -m 60 -o "$work/body.{}" -w '%{http_code}\n' -H 'content-type: application/json' \
    "$lb/v1/chat/completions" -d '{"model":"llama","max_tokens":200,"messages":[]}' >"$work/burst"
  echo "        $(sort "$work/burst" | uniq -c | tr -s ' \n' ' ')"
  check "exactly 18 of 60 are admitted" [ "$(grep -cx 200 "$work/burst")" = 18 ]
  check "the other 42 are 529" [ "$(grep -cx 529 "$work/burst")" = 42 ]
  check "a refusal says at_capacity" grep -q at_capacity "$work"/body.*
  check "counters are 0 afterwards" within 10 idle
}

part_threshold() { # the operator's HSET acts on all frontends, HDEL undoes it
  redis HSET 'tidegate:{llama}:config' active_decode_blocks_threshold 0.0 >/dev/null
  for _ in 1 2 3 4 5 6; do stream "$lb" 600; done
  check "with 0.0 every frontend refuses while engines work" within 10 every 529
  check "the reason is all_workers_busy" reason "$lb" all_workers_busy
  redis HDEL 'tidegate:{llama}:config' active_decode_blocks_threshold >/dev/null
  check "HDEL opens the gate again" within 10 every 200
  redis HSET 'tidegate:{llama}:config' active_decode_blocks_threshold 7 >/dev/null
  check "a bad value is refused where it can be seen" within 10 eval \
    "[ -n \"\$(redis HGET 'tidegate:{llama}:config:applied' error:active_decode_blocks_threshold)\" ]"
  redis HDEL 'tidegate:{llama}:config' active_decode_blocks_threshold >/dev/null
  jobs -p | xargs -r kill 2>/dev/null
  check "streams whose client left give their slots back" within 10 idle
}

part_frontend() { # kill -9 of a frontend that holds streams
  for _ in 1 2 3 4; do stream http://127.0.0.1:18001 2000; done
  check "four streams are counted" within 5 eval '[ "$(inflight)" = 4 ]'
  pound
  docker kill -s KILL "$(id frontend-1)" >/dev/null
  check "its slots are free again" within 20 eval '[ "$(redis HLEN "tidegate:{llama}:seq")" = 2 ]'
  calm
  check "clients behind HAProxy saw nothing but 200 and 529" only '200|529'
  check "counters are 0" within 10 idle
  docker start "$(id frontend-1)" >/dev/null
  check "the frontend is back" within 20 every 200
}

part_worker() { # kill -9 of a sidecar
  pound
  docker kill -s KILL "$(id worker-1)" >/dev/null
  check "two workers are open after its time to live" within 15 alive 2
  calm
  check "clients saw 200, 529, or a cut request's 502" only '200|529|502'
  check "nearly all were served" eval "[ \"\$(grep -vc '^200' '$work/answers')\" -le 12 ]"
  docker start "$(id worker-1)" >/dev/null
  check "the worker is back" healthy
  check "counters are 0" within 15 idle
}

sever() { docker network disconnect "${TIDEGATE_PROJECT}_default" "$(id "$1")"; }
mend() { docker network connect --alias "$1" "${TIDEGATE_PROJECT}_default" "$(id "$1")"; }

part_network() { # a frontend, then a worker, without a network
  sever frontend-3
  check "HAProxy goes round a frontend that is cut off" within 10 answered
  check "twenty in a row are served" eval "(for _ in \$(seq 20); do answered || exit 1; done)"
  mend frontend-3
  sever worker-2
  check "a worker that is cut off is closed" within 15 alive 2
  check "the others serve" is "$lb" 200
  mend worker-2
  check "both are back" healthy
  check "counters are 0" within 20 idle
}

degraded() { chat "$lb" 1 -o /dev/null -D - | grep -qi '^x-tidegate-degraded: 1'; }

part_redis() { # Redis without a network: static mode, then 503, then as before
  sever redis
  check "static mode answers" within 5 degraded
  check "then 503 store_unavailable" within 20 reason "$lb" store_unavailable
  mend redis
  check "served again" within 15 is "$lb" 200
  check "no worker was lost" healthy
  check "no more degraded answers" within 10 eval '! degraded'
  check "counters are 0" within 15 idle
}

part_rolling() { # all frontends and all sidecars anew, one after another, under load
  pound
  for n in 1 2 3; do
    docker restart -t 40 "$(id frontend-$n)" >/dev/null
    check "frontend-$n is ready again" within 20 is "http://127.0.0.1:1800$n" 200
  done
  calm
  check "no request failed that was not a 529" only '200|529'
  check "counters are 0" within 10 idle
}

# The fleet on another kind of Redis, whose first master is lost.
other() { # other VARIANT SERVICE
  fleet down >/dev/null 2>&1
  variant=$1
  check "the fleet starts" eval 'fleet up >"$work/up" 2>&1'
  check "three workers are listed" within 20 healthy_fleet
  check "the replicas have their copy" within 20 copied
  docker kill -s KILL "$(id "$2")" >/dev/null
  check "decisions go on after the promotion" within 30 eval 'is "$lb" 200 && ! degraded'
  fleet down >/dev/null 2>&1
  variant=
}
healthy_fleet() { [ "$(curl -s http://127.0.0.1:18001/health | grep -o '"worker_id"' | wc -l)" = 3 ]; }
copied() { # every replica has finished its first copy
  local n
  for n in 2 3 4 5 6; do
    [ -z "$(id redis-$n)" ] && continue
    docker exec "$(id redis-$n)" redis-cli info replication | tr -d '\r' |
      grep -qE 'role:master|master_link_status:up' || return 1
  done
}
part_sentinel() { other sentinel redis; }
# The master of the slot that all keys of `llama` are in.
part_cluster() { other cluster redis-2; }

docker/fleet.sh up >"$work/up" 2>&1 || {
  tail -50 "$work/up"
  failed=1
  echo "e2e: the fleet did not start"
  exit 1
}
tail -1 "$work/up"
[ $# -gt 0 ] || set -- answers burst threshold frontend worker network redis rolling sentinel cluster
for part in "$@"; do
  from=$SECONDS
  echo "$part"
  "part_$part"
  echo "        ($((SECONDS - from)) s)"
done
for failure in "${failures[@]}"; do echo "  failed: $failure"; done
echo "e2e: $passed checks held, $failed failed"
[ "$failed" = 0 ]
