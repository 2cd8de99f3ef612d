--- @include "prologue"
--- Whether a worker has been heard within its TTL. While Redis's own absence is being made up for, all are.
local function alive(w)
  local t = num(redis.call('ZSCORE', K.workers, w))
  return t ~= nil and (t >= now or grace())
end
