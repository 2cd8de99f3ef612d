--- @include "stats"
--- After a gap: no stored time lies further ahead than it could (a clock that went back).
function M.clamp()
  for _, limit in ipairs({
    { K.workers, now + 5000 }, { K.frontends, now + M.FRONTEND_TTL_MS }, { K.skips, now + 1000 }, { K.due, now },
  }) do
    local latest = M.int(limit[2])
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', limit[1], '(' .. latest, '+inf', 'LIMIT', 0, 256)) do
      redis.call('ZADD', limit[1], latest, member)
    end
  end
  S.born = math.min(S.born or now, now)
end
