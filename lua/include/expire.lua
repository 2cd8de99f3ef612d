--- @include "gate"
--- @include "place"
--- @include "prologue"
--- A worker that has been silent for its TTL is not alive: its gate closes; it is forgotten when its count is 0.
function M.expire(w)
  redis.call('ZREM', K.workers, w)
  if not M.gate(w) then return end
  M.mark(w, 'x', true, 'silent')
  if M.count(w) == 0 then M.forget(w) else M.place(w) end
end

--- At most `most` of those whose time is over; none while Redis's own absence is being made up for.
function M.expire_due(most)
  if M.grace() then return end
  for _, w in ipairs(redis.call('ZRANGEBYSCORE', K.workers, '-inf', '(' .. M.int(now), 'LIMIT', 0, most)) do
    M.expire(w)
  end
end
