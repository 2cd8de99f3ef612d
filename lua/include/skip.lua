--- @include "gate"
--- @include "place"
--- A worker that refused admission itself is skipped by everybody for a second.
M.SKIP_MS = 1000

function M.skip(w, inc)
  local g = M.gate(w)
  if not g or g.inc ~= inc then return end
  redis.call('ZADD', K.skips, M.int(now + M.SKIP_MS), w)
  M.mark(w, 's', true)
  M.place(w)
end

function M.end_skip(w)
  redis.call('ZREM', K.skips, w)
  if M.gate(w) and M.mark(w, 's', false) then M.place(w) end
end

--- Ends those that are over, at most 16 a call.
function M.end_due_skips()
  for _, w in ipairs(redis.call('ZRANGEBYSCORE', K.skips, '-inf', M.int(now), 'LIMIT', 0, 16)) do M.end_skip(w) end
end
