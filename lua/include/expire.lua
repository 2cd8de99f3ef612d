--- @include "mark"
--- @include "place"
--- @include "prologue"
--- A worker that has been silent for its TTL is not alive: its gate closes; it is forgotten when its count is 0.
function M.expire(w)
  redis.call('ZREM', K.workers, w)
  if not M.gate(w) then return end
  M.mark(w, 'x', true, 'silent')
  if M.gate(w).n == 0 then M.forget(w) else M.place(w) end
end
