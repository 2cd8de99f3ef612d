--- @include "gate"
--- @include "place"
--- @include "prologue"
--- A worker that has been silent for its TTL is not alive: its gate closes; it is forgotten when its count is 0.
local function expire(w)
  redis.call('ZREM', K.workers, w)
  local g = gate(w)
  if not g then return end
  mark(w, 'x', true, 'silent')
  if count(w) == 0 then forget(w) else place(w) end
end

--- At most `most` of those whose time is over; none while Redis's own absence is being made up for.
local function expire_due(most)
  if grace() then return end
  for _, w in ipairs(redis.call('ZRANGEBYSCORE', K.workers, '-inf', '(' .. int(now), 'LIMIT', 0, most)) do expire(w) end
end
