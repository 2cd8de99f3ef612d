--- @include "prologue"
--- Whether a worker has been heard within its TTL. While Redis's own absence is being made up for, all are.
function M.alive(w)
  local t = M.num(redis.call('ZSCORE', K.workers, w))
  return t ~= nil and (t >= now or M.grace())
end
