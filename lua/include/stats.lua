--- @include "num"
--- P:stats in memory: `S`. Numbers, but for the epoch. Read in two parts: what every call needs, and the rest on
--- demand (`more_stats`). What changed is written by `save_stats`.
M.FIRST = { 'epoch', 'revision', 'inflight_total', 'live', 'live_busy', 'heard', 'healing_until', 'grace_until' }
M.MORE = { 'born', 'away_ms', 'fleet_version', 'drain_rate', 'drain_ms', 'shed_ms', 'shed_now', 'shed_before' }
M.stored, M.has_more = {}, false

function M.read_stats(names)
  local v = redis.call('HMGET', K.stats, unpack(names))
  for i, name in ipairs(names) do
    local x = v[i]
    if name ~= 'epoch' then x = M.num(x) end
    S[name] = x or nil
    M.stored[name] = S[name]
  end
end

--- True if P:stats is whole.
function M.load_stats()
  M.read_stats(M.FIRST)
  if not (S.epoch and S.revision and S.inflight_total and S.live and S.live_busy) then return false end
  return S.inflight_total >= 0 and S.live >= 0 and S.live_busy >= 0
end

--- The rest; what is missing counts as 0, but for the times at which something began.
function M.more_stats()
  if M.has_more then return end
  M.has_more = true
  M.read_stats(M.MORE)
  S.born = S.born or now
  S.away_ms = S.away_ms or 0
  S.fleet_version = S.fleet_version or 0
  S.drain_rate = S.drain_rate or 0
end

function M.save_stats()
  local put, stored = {}, M.stored
  for name, value in pairs(S) do
    if value ~= stored[name] then
      put[#put + 1] = name
      put[#put + 1] = name == 'epoch' and value or string.format(name == 'drain_rate' and '%.6f' or '%d', value)
    end
  end
  if #put > 0 then redis.call('HSET', K.stats, unpack(put)) end
end
