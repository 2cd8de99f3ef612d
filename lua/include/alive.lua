--- @include "prologue"
--- Whether a worker has been heard within its TTL. While Redis's own absence is being made up for, all are.
--- (`M.until_ms`: what has been read of P:workers for many at once.)
function M.alive(w)
  local t = M.until_ms and M.until_ms[w] or M.num(redis.call('ZSCORE', K.workers, w))
  return t ~= nil and (t >= now or M.grace())
end
