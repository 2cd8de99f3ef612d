--- @include "clock"
--- @include "shard"
--- @include "prologue"
--- @include "gate"
--- @include "place"
--- @rarely "types"
--- Runs a script's `main`, then writes what it has changed. State that contradicts itself ends in a new epoch from
--- wherever it is found (`broken`): a new epoch drops all that was written by then.
--- mem, seen, rnd: what a new epoch would need of the caller.
function M.run(main, mem, seen, rnd)
  local ok, reply = pcall(function()
    local r = main()
    M.flush_gates()
    M.flush_places()
    M.save_stats()
    return r
  end)
  if ok then return reply end
  if reply == M.contradiction then
    M.drop_wrong_types()
    return M.new_epoch(M.contradiction.why, mem, seen, rnd)
  end
  -- An error of a command is a string on some versions of Redis, a table on others.
  local text = type(reply) == 'table' and reply.err or tostring(reply)
  if string.find(text, 'WRONGTYPE', 1, true) then
    M.drop_wrong_types()
    M.load_stats()
    return M.new_epoch('wrong type', mem, seen, rnd)
  end
  return redis.error_reply(text)
end
