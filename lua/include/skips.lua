--- @include "num"
--- @rarely "skip"
--- Ends those that are over, at most 16 a call.
function M.end_due_skips()
  for _, w in ipairs(redis.call('ZRANGEBYSCORE', K.skips, '-inf', M.int(now), 'LIMIT', 0, 16)) do M.end_skip(w) end
end
