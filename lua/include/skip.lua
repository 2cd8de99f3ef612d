--- @include "gate"
--- @include "place"
--- A worker that refused admission itself is skipped by everybody for a second.
local SKIP_MS = 1000

local function skip(w, inc)
  local g = gate(w)
  if not g or g.inc ~= inc then return end
  redis.call('ZADD', K.skips, int(now + SKIP_MS), w)
  mark(w, 's', true)
  place(w)
end

local function end_skip(w)
  redis.call('ZREM', K.skips, w)
  if gate(w) and mark(w, 's', false) then place(w) end
end

--- Ends those that are over, at most 16 a call.
local function end_due_skips()
  for _, w in ipairs(redis.call('ZRANGEBYSCORE', K.skips, '-inf', int(now), 'LIMIT', 0, 16)) do end_skip(w) end
end
