#!lua flags=allow-oom
--[[ A frontend asserts leases it holds, in parts; only ever adds. `first`: the first part after 'epoch' or 'gone';
what is still counted for this id is taken out before (the frontend no longer knows it), 500 a call.
KEYS[1..17]  the model's keys (include/shard)      KEYS[18]  P:leases:<frontend>      KEYS[19..]  P:worker:<w> of each worker named
ARGV[1..7]   the caller (include/fence)            ARGV[8]   first (0/1)              ARGV[9]     how many workers
ARGV[10..]   workers, then (id, number of its worker from 1, incarnation, url, tokens)*, at most 500
returns      {'ok', epoch, healing ms left, revision, frontends alive, dropped ids...} · {'again'}: same part once more
             or {'gone'} {'stale', seq} {'epoch', healing ms}
cost         O(500) ]]
--- @include "run"
--- @include "fence"
--- @include "lease"
--- @include "mark"
--- @include "heal"
--- @include "older"
local first, named = ARGV[8] == '1', tonumber(ARGV[9])

--- A lease on a worker that Redis does not know (yet), or that is larger than the gate's incarnation: the gate becomes
--- a closed one of that incarnation, so that the lease is counted until its worker has registered again.
local function ensure_gate(w, inc, url, key)
  local g = M.gate(w)
  if g and not M.older(g.inc, inc) then return end
  local remembered = redis.call('HGET', key, 'incarnation')
  if remembered and M.older(inc, remembered) then return end
  M.new_gate(w, inc, nil, url)
  for _, key in ipairs({ K.workers, K.skips, K.due }) do redis.call('ZREM', key, w) end
  redis.call('SREM', K.busy, w)
  M.touched[w] = true
end

local function main()
  local refused = M.prologue(true, caller.mem, caller.seen, caller.rnd) or M.fence('reconcile', first)
  if refused then return refused end
  local same = caller.epoch == S.epoch
  if not same and not first then
    -- A part must not pass for the whole.
    M.heal_for(caller)
    return { 'epoch', M.healing_left() }
  end
  if not same then M.heal_for(caller) end
  local held = M.leases(KEYS[18], member.n)
  if member.epoch ~= S.epoch then
    redis.call('UNLINK', KEYS[18])
    held.n = 0
  elseif first and held.n > 0 then
    if redis.call('HLEN', KEYS[18]) ~= held.n then M.broken('leases of ' .. caller.frontend) end
    local all, ids = redis.call('HGETALL', KEYS[18]), {}
    for i = 1, math.min(#all, 1000), 2 do
      held.value[all[i]] = all[i + 1]
      ids[#ids + 1] = all[i]
    end
    M.del_all(held, ids)
    if held.n > 0 then
      M.settle()
      M.flush(held)
      M.write_seq(caller.frontend, S.epoch, caller.seq, held.n)
      return { 'again' }
    end
  end
  S.revision = math.max(S.revision, caller.seen) + 1

  local asserted, largest = {}, {}
  for i = 10 + named, #ARGV, 5 do
    local n = tonumber(ARGV[i + 1])
    local l = { id = ARGV[i], w = ARGV[9 + n], inc = ARGV[i + 2], url = ARGV[i + 3], tokens = tonumber(ARGV[i + 4]) }
    asserted[#asserted + 1] = l
    local top = largest[n]
    if not top or M.older(top.inc, l.inc) then largest[n] = l end
    local w, inc = M.read_lease(held, l.id)
    local g = w and M.gate(w)
    if w and (not g or g.inc ~= inc) then M.del_all(held, { l.id }) end
  end
  for n = 1, named do
    local top = largest[n]
    if top then ensure_gate(top.w, top.inc, top.url, KEYS[18 + n]) end
  end
  local dropped = {}
  for _, l in ipairs(asserted) do
    local g = M.gate(l.w)
    if g and g.inc == l.inc then M.add(held, l.id, l.w, l.inc, l.tokens) else dropped[#dropped + 1] = l.id end
  end
  M.settle()
  M.flush(held)
  redis.call('ZADD', K.frontends, M.int(now + M.FRONTEND_TTL_MS), caller.frontend)
  M.write_seq(caller.frontend, S.epoch, caller.seq, held.n)
  if #asserted > 0 then M.transition('healed', caller.frontend, (#asserted - #dropped) .. ' leases') end
  return { 'ok', S.epoch, M.healing_left(), S.revision, redis.call('ZCARD', K.frontends), unpack(dropped) }
end

return M.run(main, caller.mem, caller.seen, caller.rnd)
