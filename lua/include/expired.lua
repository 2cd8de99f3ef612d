--- @include "prologue"
--- @rarely "expire"
--- Those whose time is over, at most 256; none while Redis's own absence is being made up for.
function M.expire_due()
  if M.grace() then return end
  for _, w in ipairs(redis.call('ZRANGEBYSCORE', K.workers, '-inf', '(' .. M.int(now), 'LIMIT', 0, 256)) do
    M.expire(w)
  end
end
