--- @include "gate"
--- @include "expire"
--- Why there is no worker for an admission: the first that holds. What has expired unnoticed is expired first.
local expired_all = false

local function cause(a)
  if not expired_all then
    expire_due(16)
    expired_all = true
  end
  if applied().router_mode == 'direct' then
    if a.pin == '' then return 'no_pin' end
    local g = gate(a.pin)
    if not g or not live(g) or a.exclude[a.pin] then return 'no_workers' end
    if has(g, 'b') then return 'all_workers_busy' end
    return has(g, 's') and 'worker_refused' or 'at_capacity'
  end
  local reachable, busy = S.live, S.live_busy
  for w in pairs(a.exclude) do
    local g = gate(w)
    if g and live(g) then
      reachable = reachable - 1
      if has(g, 'b') then busy = busy - 1 end
    end
  end
  if reachable <= 0 then return 'no_workers' end
  if busy > 0 then return 'all_workers_busy' end
  return redis.call('ZCARD', K.skips) > 0 and 'worker_refused' or 'at_capacity'
end

--- Counts refusals in windows of 5 s, for Retry-After.
local function shed(k)
  local since = S.shed_ms and now - S.shed_ms
  if not since or since < 0 or since >= 10000 then
    S.shed_ms, S.shed_now, S.shed_before = now, 0, 0
  elseif since >= 5000 then
    S.shed_ms, S.shed_now, S.shed_before = S.shed_ms + 5000, 0, S.shed_now
  end
  S.shed_now = (S.shed_now or 0) + k
end

--- Refusals of about the last 5 s.
local function shed_lately()
  if not S.shed_ms then return 0 end
  return math.floor((S.shed_before or 0) * math.max(0, 1 - (now - S.shed_ms) / 5000) + (S.shed_now or 0))
end
