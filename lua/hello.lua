#!lua flags=allow-oom
--[[ Makes a frontend known: the only call that creates one. Repeated with the same id after an unknown outcome.
KEYS[1..17]  the model's keys (include/shard)      ARGV[1..7]  the caller (include/fence)
returns      {'ok', epoch, healing ms left, revision} or {'gone'} {'stale', seq} {'epoch', healing ms} ]]
--- @include "run"
--- @include "fence"
--- @include "heal"
local function main()
  local refused = M.prologue(true, caller.mem, caller.seen, caller.rnd) or M.fence('hello')
  if refused then return refused end
  M.heal_for(caller)
  redis.call('ZADD', K.frontends, M.int(now + M.FRONTEND_TTL_MS), caller.frontend)
  M.write_seq(caller.frontend, 'new', caller.seq, 0)
  return { 'ok', S.epoch, M.healing_left(), S.revision }
end

return M.run(main, caller.mem, caller.seen, caller.rnd)
