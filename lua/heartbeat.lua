#!lua flags=allow-oom
--[[ A frontend's sign of life, every 2 s. Checks that the sums are sums, takes changed configuration into force, and
names what is due, for the sweep.
KEYS[1..17]  the model's keys (include/shard)      KEYS[18]  P:leases:<frontend>      ARGV[1..7]  the caller (include/fence)
returns      {'ok', revision, healing ms left, frontends alive, config_version, fleet_version, inflight_total,
              n, (worker, in flight)*n, m, due worker*m, due frontends...}   (n is 0 in fleets above 256 workers)
             or {'gone'} {'stale', seq} {'epoch', healing ms}
cost         O(256) ]]
--- @include "run"
--- @include "fence"
--- @include "config"
local FEW = 256

--- State that is not the sum of its parts has lost writes, or was written by hand.
local function check_sums()
  if redis.call('HLEN', KEYS[18]) ~= member.n then M.broken('leases of ' .. caller.frontend) end
  if redis.call('ZCARD', K.frontends) ~= redis.call('HLEN', K.seq) then M.broken('registries') end
  local workers = redis.call('HLEN', K.gate)
  if workers ~= redis.call('HLEN', K.inflight) then M.broken('gates and counts') end
  if workers > FEW then return {}, {} end
  local names, counts, open = redis.call('HKEYS', K.inflight), {}, {}
  M.warm_workers(names)
  local sum, lively, lively_busy = 0, 0, 0
  for i, w in ipairs(names) do
    local g = M.gate(w)
    if not g then M.broken('count without gate') end
    sum = sum + g.n
    counts[2 * i - 1], counts[2 * i] = w, g.n
    if not M.has(g, 'x') then open[#open + 1] = w end
    if M.live(g) then
      lively = lively + 1
      if M.has(g, 'b') then lively_busy = lively_busy + 1 end
    end
  end
  if sum ~= S.inflight_total then M.broken('total') end
  S.live, S.live_busy = lively, lively_busy
  -- A worker that is not closed as expired is in P:workers, or nobody would notice its silence.
  local unheard = {}
  if #open > redis.call('ZCARD', K.workers) then
    for _, w in ipairs(open) do
      if not redis.call('ZSCORE', K.workers, w) then unheard[#unheard + 1] = w end
    end
  end
  return counts, unheard
end

local function main()
  local refused = M.prologue(true, caller.mem, caller.seen, caller.rnd) or M.fence('call')
  if refused then return refused end
  local counts, unheard = check_sums()
  M.notice()
  redis.call('ZADD', K.frontends, M.int(now + M.FRONTEND_TTL_MS), caller.frontend)
  M.write_seq(caller.frontend, S.epoch, caller.seq, member.n)

  local due, silent = {}, {}
  local function name_one(w)
    if not due[w] and #due < FEW then
      due[w] = true
      due[#due + 1] = w
    end
  end
  local function name(key, latest)
    for _, w in ipairs(redis.call('ZRANGEBYSCORE', key, '-inf', latest, 'LIMIT', 0, FEW)) do name_one(w) end
  end
  name(K.skips, M.int(now))
  name(K.due, M.int(now))
  if not M.grace() then
    name(K.workers, '(' .. M.int(now))
    for _, w in ipairs(unheard) do name_one(w) end
    silent = redis.call('ZRANGEBYSCORE', K.frontends, '-inf', '(' .. M.int(now), 'LIMIT', 0, 8)
  end

  M.more_stats()
  local reply = {
    'ok', S.revision, M.healing_left(), redis.call('ZCARD', K.frontends), M.whole(redis.call('HGET', K.applied, 'config_version')) or 0,
    S.fleet_version, S.inflight_total, #counts / 2,
  }
  for _, v in ipairs(counts) do reply[#reply + 1] = v end
  reply[#reply + 1] = #due
  for _, w in ipairs(due) do reply[#reply + 1] = w end
  for _, f in ipairs(silent) do reply[#reply + 1] = f end
  return reply
end

return M.run(main, caller.mem, caller.seen, caller.rnd)
