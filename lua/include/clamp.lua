--- @include "stats"
--- After a gap: no stored time lies further ahead than it could (a clock that went back).
function M.clamp()
  for _, limit in ipairs({
    { K.workers, now + 5000 }, { K.frontends, now + M.FRONTEND_TTL_MS }, { K.skips, now + 1000 }, { K.due, now },
  }) do
    local latest = M.int(limit[2])
    repeat
      local ahead = redis.call('ZRANGEBYSCORE', limit[1], '(' .. latest, '+inf', 'LIMIT', 0, 256)
      for _, member in ipairs(ahead) do redis.call('ZADD', limit[1], latest, member) end
    until #ahead == 0
  end
  S.born = math.min(S.born or now, now)
end
