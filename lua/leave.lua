#!lua flags=allow-oom
--[[ A worker's goodbye: not alive any more, at once; forgotten when its last lease has ended.
KEYS[1..17]  the model's keys (include/shard)
ARGV[1..2]   worker, incarnation
returns      {'ok'}, also if that incarnation is not the gate's ]]
--- @include "run"
--- @include "mark"
local function main()
  local made = M.prologue(false, true, 0, 'leave')
  local w = ARGV[1]
  local g = not made and M.gate(w)
  if g and g.inc == ARGV[2] then
    redis.call('ZREM', K.workers, w)
    M.mark(w, 'x', true, 'goodbye')
    if M.gate(w).n == 0 then M.forget(w) else M.place(w) end
  end
  return { 'ok' }
end

return M.run(main, true, 0, 'leave')
