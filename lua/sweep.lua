#!lua flags=allow-oom
--[[ Checks again what a heartbeat named: dead frontends (their leases are given back, at most 500 a call), skips that
are over, stale signals, dead workers. Carries no seq: whoever calls it, and whenever, it does what is due.
KEYS[1..17]  the model's keys (include/shard)      KEYS[18..]  P:leases:<f> of each frontend, P:worker:<w> of each worker
ARGV[1]      random word     ARGV[2]  how many frontends     ARGV[3..]  frontends, then workers (at most 256)
returns      {'ok', frontends whose leases were too many: repeat at once...} or {'epoch', healing ms}
cost         O(500 + 256 ranks) ]]
--- @include "run"
--- @include "alive"
--- @include "seq"
--- @include "lease"
--- @include "skip"
--- @include "mark"
--- @include "expire"
--- @include "recompute"
local budget = 500
local more = {}

local function reap(f, key)
  local t = M.num(redis.call('ZSCORE', K.frontends, f))
  if not t or t >= now or (M.grace() and t > 0) then return end
  local epoch, seq, n = M.read_seq(f)
  if not epoch then M.broken('registry of ' .. f) end
  if epoch ~= S.epoch then
    -- Not counted in this epoch.
    redis.call('UNLINK', key)
  else
    if redis.call('HLEN', key) ~= n then M.broken('leases of ' .. f) end
    local held = M.leases(key, n)
    local all = n > 0 and redis.call('HGETALL', key) or {}
    local ids = {}
    for i = 1, #all, 2 do
      if budget == 0 then break end
      budget = budget - 1
      held.value[all[i]] = all[i + 1]
      ids[#ids + 1] = all[i]
    end
    M.released(M.del_all(held, ids))
    M.settle()
    M.flush(held)
    if held.n > 0 then
      redis.call('ZADD', K.frontends, 0, f)
      M.write_seq(f, epoch, seq, held.n)
      more[#more + 1] = f
      return
    end
  end
  redis.call('ZREM', K.frontends, f)
  redis.call('HDEL', K.seq, f)
  S.revision = S.revision + 1
  M.transition('reaped', f, 'silent')
end

local function check(w, key)
  if not M.alive(w) and not M.grace() then M.expire(w) end
  if not M.gate(w) then
    redis.call('ZREM', K.due, w)
    redis.call('ZREM', K.skips, w)
    return
  end
  local skipped = M.num(redis.call('ZSCORE', K.skips, w))
  if not skipped or skipped <= now then M.end_skip(w) end
  M.recompute(w, key, M.read_worker(key))
  M.place(w)
end

local function main()
  local refused = M.prologue(false, true, 0, ARGV[1])
  if refused then return refused end
  local frontends = tonumber(ARGV[2])
  for i = 3, #ARGV do
    if i - 2 <= frontends then reap(ARGV[i], KEYS[15 + i]) else check(ARGV[i], KEYS[15 + i]) end
  end
  return { 'ok', unpack(more) }
end

return M.run(main, true, 0, ARGV[1])
