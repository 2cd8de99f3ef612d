--- @include "stats"
--- @include "journal"
--- @include "seq"
--- Starts a new epoch: "as after FLUSHALL". All that can be said again by those who know it is dropped; what is
--- kept are the operator's configuration, the workers' own hashes, the frontends and their lease hashes
--- (a hash counts only if its P:seq field names the current epoch).
--- mem: the caller remembers an earlier epoch, so others may hold leases too: decisions wait while they say so.
M.HEAL_MS, M.GRACE_MS, M.FRONTEND_TTL_MS = 4000, 4000, 10000

function M.new_epoch(why, mem, seen, rnd)
  M.more_stats()
  S.revision = math.max(now * 1000, (S.revision or 0) + 1, seen + 1)
  redis.call('DEL', K.workers, K.gate, K.busy, K.eligible, K.inflight, K.reserved, K.route, K.skips, K.due)
  S.epoch = M.int(now) .. '-' .. rnd
  S.born, S.heard = now, now
  S.healing_until = mem and now + M.HEAL_MS or 0
  S.grace_until, S.away_ms = now + M.GRACE_MS, 0
  S.inflight_total, S.live, S.live_busy = 0, 0, 0
  S.fleet_version = S.fleet_version + 1
  M.stored = {}
  M.save_stats()
  -- Exactly the members of both registries, so that a lost half cannot fire again.
  local latest = now + M.FRONTEND_TTL_MS
  for _, f in ipairs(redis.call('HKEYS', K.seq)) do redis.call('ZADD', K.frontends, 'NX', M.int(latest), f) end
  local scores = redis.call('ZRANGE', K.frontends, 0, -1, 'WITHSCORES')
  for i = 1, #scores, 2 do
    if not M.read_seq(scores[i]) then redis.call('HSET', K.seq, scores[i], 'none|0|0') end
    local t = M.num(scores[i + 1])
    if not t or t < 0 or t > latest then redis.call('ZADD', K.frontends, M.int(latest), scores[i]) end
  end
  M.transition('epoch', S.epoch, why)
  return { 'epoch', mem and M.HEAL_MS or 0 }
end
