--- @include "stats"
--- @include "journal"
--- @include "seq"
--- Starts a new epoch: "as after FLUSHALL". All that can be said again by those who know it is dropped; what is
--- kept are the operator's configuration, the workers' own hashes, the frontends and their lease hashes
--- (a hash counts only if its P:seq field names the current epoch).
--- mem: the caller remembers an earlier epoch, so others may hold leases too: decisions wait while they say so.
local HEAL_MS, GRACE_MS, FRONTEND_TTL_MS = 4000, 4000, 10000

local function new_epoch(why, mem, seen, rnd)
  local revision = math.max(now * 1000, (S.revision or 0) + 1, seen + 1)
  redis.call('DEL', K.workers, K.gate, K.busy, K.eligible, K.inflight, K.reserved, K.route, K.skips, K.due)
  S.epoch = int(now) .. '-' .. rnd
  S.revision = revision
  S.born, S.heard = now, now
  S.healing_until = mem and now + HEAL_MS or 0
  S.grace_until, S.away_ms = now + GRACE_MS, 0
  S.inflight_total, S.live, S.live_busy = 0, 0, 0
  S.fleet_version = (S.fleet_version or 0) + 1
  save_stats()
  -- Exactly the members of both registries, so that a lost half cannot fire again.
  local alive = now + FRONTEND_TTL_MS
  local scores = redis.call('ZRANGE', K.frontends, 0, -1, 'WITHSCORES')
  for i = 1, #scores, 2 do
    if not read_seq(scores[i]) then redis.call('HSET', K.seq, scores[i], 'none|0|0') end
    if num(scores[i + 1]) > alive then redis.call('ZADD', K.frontends, alive, scores[i]) end
  end
  for _, f in ipairs(redis.call('HKEYS', K.seq)) do redis.call('ZADD', K.frontends, 'NX', alive, f) end
  transition('epoch', S.epoch, why)
  return { 'epoch', mem and HEAL_MS or 0 }
end
