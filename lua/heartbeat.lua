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
  if redis.call('HLEN', KEYS[18]) ~= member.n then broken('leases of ' .. caller.frontend) end
  if redis.call('ZCARD', K.frontends) ~= redis.call('HLEN', K.seq) then broken('registries') end
  local workers = redis.call('HLEN', K.gate)
  if workers ~= redis.call('HLEN', K.inflight) then broken('gates and counts') end
  if workers > FEW then return {} end
  local counts = redis.call('HGETALL', K.inflight)
  local sum, lively, lively_busy = 0, 0, 0
  for i = 1, #counts, 2 do
    INFLIGHT.value[counts[i]] = counts[i + 1]
    sum = sum + count(counts[i])
    local g = gate(counts[i])
    if not g then broken('count without gate') end
    if live(g) then
      lively = lively + 1
      if has(g, 'b') then lively_busy = lively_busy + 1 end
    end
  end
  if sum ~= S.inflight_total then broken('total') end
  S.live, S.live_busy = lively, lively_busy
  return counts
end

local function main()
  local refused = prologue(true, caller.mem, caller.seen, caller.rnd) or fence('call')
  if refused then return refused end
  local gates = redis.call('HLEN', K.gate) <= FEW and redis.call('HGETALL', K.gate) or {}
  for i = 1, #gates, 2 do GATE.value[gates[i]] = gates[i + 1] end
  local counts = check_sums()
  notice()
  redis.call('ZADD', K.frontends, int(now + FRONTEND_TTL_MS), caller.frontend)
  write_seq(caller.frontend, S.epoch, caller.seq, member.n)

  local due, silent = {}, {}
  local function name(key, latest)
    for _, w in ipairs(redis.call('ZRANGEBYSCORE', key, '-inf', latest, 'LIMIT', 0, FEW)) do
      if not due[w] and #due < FEW then
        due[w] = true
        due[#due + 1] = w
      end
    end
  end
  name(K.skips, int(now))
  name(K.due, int(now))
  if not grace() then
    name(K.workers, '(' .. int(now))
    silent = redis.call('ZRANGEBYSCORE', K.frontends, 0, '(' .. int(now), 'LIMIT', 0, 8)
  end

  local reply = {
    'ok', S.revision, healing_left(), redis.call('ZCARD', K.frontends), num(redis.call('HGET', K.applied, 'config_version')) or 0,
    S.fleet_version or 0, S.inflight_total, #counts / 2,
  }
  for _, v in ipairs(counts) do reply[#reply + 1] = v end
  reply[#reply + 1] = #due
  for _, w in ipairs(due) do reply[#reply + 1] = w end
  for _, f in ipairs(silent) do reply[#reply + 1] = f end
  return reply
end

return run(main, caller.mem, caller.seen, caller.rnd)
