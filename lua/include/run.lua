--- @include "clock"
--- @include "shard"
--- @include "broken"
--- @include "prologue"
--- @include "gate"
--- @include "place"
--- Drops what is not of its type (somebody wrote over it). P:config is the operator's: it is never touched.
function M.drop_wrong_types()
  local types = {
    applied = 'hash', history = 'stream', workers = 'zset', gate = 'hash', busy = 'set', eligible = 'zset',
    inflight = 'hash', reserved = 'hash', route = 'hash', skips = 'zset', due = 'zset', frontends = 'zset', seq = 'hash',
    load = 'stream', transitions = 'stream', stats = 'hash',
  }
  local function drop(key, want)
    local is = redis.call('TYPE', key).ok
    if is ~= 'none' and is ~= want then redis.call('DEL', key) end
  end
  for name, want in pairs(types) do drop(K[name], want) end
  -- Lease and worker hashes.
  for i = 18, #KEYS do drop(KEYS[i], 'hash') end
end

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
  if reply == M.BROKEN then
    M.drop_wrong_types()
    return M.new_epoch(M.BROKEN.why, mem, seen, rnd)
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
