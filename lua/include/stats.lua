--- @include "num"
--- P:stats in memory: `S`. Numbers, but for the epoch. Read in two parts: what every call needs, and the rest on
--- demand (`more_stats`). What changed is written by `save_stats`.
M.FIRST = { 'epoch', 'revision', 'inflight_total', 'live', 'live_busy', 'heard', 'healing_until', 'grace_until', 'born' }
M.MORE = { 'away_ms', 'fleet_version', 'drain_rate', 'drain_ms', 'shed_ms', 'shed_now', 'shed_before' }
M.stored, M.has_more = {}, false

function M.read_stats(names)
  local v = redis.call('HMGET', K.stats, unpack(names))
  for i, name in ipairs(names) do
    local x = v[i]
    if name == 'drain_rate' then x = M.num(x) elseif name ~= 'epoch' then x = M.whole(x) end
    S[name] = x or nil
    M.stored[name] = S[name]
  end
end

--- True if P:stats is whole. A revision is never below the one its epoch began with.
function M.load_stats()
  M.has_more = false
  M.read_stats(M.FIRST)
  if not (S.epoch and S.revision and S.inflight_total and S.live and S.live_busy) then return false end
  return S.revision >= (S.born or 0) * 1000
end

--- The rest; what is missing counts as 0 (and is not written before it changes), but for times.
function M.more_stats()
  if M.has_more then return end
  M.has_more = true
  M.read_stats(M.MORE)
  for _, name in ipairs({ 'away_ms', 'fleet_version', 'drain_rate' }) do
    S[name] = S[name] or 0
    M.stored[name] = S[name]
  end
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

--- Adds to a counter of a hash that no decision depends on. One that is no number begins anew.
function M.bump(key, field, by)
  local n = (M.whole(redis.call('HGET', key, field)) or 0) + by
  redis.call('HSET', key, field, M.int(n))
  return n
end
