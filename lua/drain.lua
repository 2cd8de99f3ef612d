#!lua flags=allow-oom
--[[ Takes a worker out of routing, or back in; what it runs goes on.
KEYS[1..17]  the model's keys (include/shard)      KEYS[18]  P:worker:<id>
ARGV[1..3]   worker, incarnation, 1 (out) or 0 (in)
returns      {'ok'}, also if that incarnation is not the gate's ]]
--- @include "run"
--- @include "mark"
local function main()
  local made = M.prologue(false, true, 0, 'drain')
  local g = not made and M.gate(ARGV[1])
  if g and g.inc == ARGV[2] then
    M.mark(ARGV[1], 'd', ARGV[3] == '1')
    if redis.call('EXISTS', KEYS[18]) == 1 then redis.call('HSET', KEYS[18], 'draining', ARGV[3]) end
    M.place(ARGV[1])
  end
  return { 'ok' }
end

return M.run(main, true, 0, 'drain')
