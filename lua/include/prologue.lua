--- @include "epoch"
--- Every script's first act. Redis was away, or its clock went back (`gap`): nobody is judged by that time. For 4 s
--- nobody is reaped and nothing goes stale, and no stored time lies further ahead than it could.
--- Returns a reply if there was no usable P:stats: a new epoch was started.
local GAP_MS = 2500

local function no_later(key, latest)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. int(latest), '+inf', 'LIMIT', 0, 256)) do
    redis.call('ZADD', key, int(latest), member)
  end
end

local function clamp()
  no_later(K.workers, now + 5000)
  no_later(K.frontends, now + FRONTEND_TTL_MS)
  no_later(K.skips, now + 1000)
  no_later(K.due, now)
  S.healing_until = math.min(S.healing_until or 0, now + HEAL_MS)
  S.grace_until = math.min(S.grace_until or 0, now + GRACE_MS)
  S.born = math.min(S.born or now, now)
end

--- hears: the caller's call is a sign that the fleet is alive.
local function prologue(hears, mem, seen, rnd)
  if not load_stats() then return new_epoch('no stats', mem, seen, rnd) end
  local heard = S.heard
  local gap = not heard or not S.grace_until or now - heard > GAP_MS or now < heard
  if gap then
    clamp()
    if heard and heard < (S.healing_until or 0) then S.healing_until = now + HEAL_MS end
    S.grace_until = now + GRACE_MS
    S.away_ms = math.max(0, now - (heard or now))
  end
  S.healing_until = S.healing_until or 0
  S.born = S.born or now
  if gap or hears then S.heard = now end
end

local function grace()
  return now < S.grace_until
end

local function healing_left()
  return math.max(0, S.healing_until - now)
end
