--- @include "clock"
--- @include "shard"
--- @include "epoch"
--- @include "broken"
--- @include "prologue"
--- @include "gate"
--- Runs a script's `main`. State that contradicts itself ends in a new epoch from wherever it is found (`broken`):
--- nothing was written by then but P:eligible, which a new epoch drops.
local TYPES = {
  [K.applied] = 'hash', [K.history] = 'stream', [K.workers] = 'zset', [K.gate] = 'hash', [K.busy] = 'set',
  [K.eligible] = 'zset', [K.inflight] = 'hash', [K.reserved] = 'hash', [K.route] = 'hash', [K.skips] = 'zset',
  [K.due] = 'zset', [K.frontends] = 'zset', [K.seq] = 'hash', [K.load] = 'stream', [K.transitions] = 'stream',
  [K.stats] = 'hash',
}

--- Drops what is not of its type (somebody wrote over it). P:config is the operator's: it is never touched.
local function drop_wrong_types()
  for i = 1, #KEYS do
    local want = TYPES[KEYS[i]] or (i > 17 and 'hash')
    local is = redis.call('TYPE', KEYS[i]).ok
    if want and is ~= 'none' and is ~= want then redis.call('DEL', KEYS[i]) end
  end
end

--- mem, seen, rnd: what a new epoch would need of the caller.
local function run(main, mem, seen, rnd)
  local ok, reply = pcall(function()
    local r = main()
    for _, c in ipairs({ GATE, INFLIGHT, RESERVED, ROUTE }) do flush(c) end
    save_stats()
    return r
  end)
  if ok then return reply end
  if reply == BROKEN then return new_epoch(BROKEN.why, mem, seen, rnd) end
  -- An error of a command is a string on some versions of Redis, a table on others.
  local text = type(reply) == 'table' and reply.err or tostring(reply)
  if string.find(text, 'WRONGTYPE', 1, true) then
    drop_wrong_types()
    load_stats()
    return new_epoch('wrong type', mem, seen, rnd)
  end
  return redis.error_reply(text)
end
