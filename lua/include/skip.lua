--- @include "mark"
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
