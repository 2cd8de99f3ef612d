--- @include "num"
--- P:stats in memory: `S`. Numbers, but for the epoch. Read in two parts: what every call needs, and the rest on
--- demand (`more_stats`). What changed is written by `save_stats`.
M.FIRST = { 'epoch', 'revision', 'inflight_total', 'live', 'live_busy', 'heard', 'healing_until', 'grace_until', 'born' }
M.MORE = { 'away_ms', 'fleet_version', 'drain_rate', 'drain_ms', 'shed_ms', 'shed_now', 'shed_before' }
M.stored = {}

function M.read_stats(names)
  local v = redis.call('HMGET', K.stats, unpack(names))
  for i, name in ipairs(names) do
    if name == 'epoch' then
      S.epoch = v[i] or nil
    elseif name == 'drain_rate' then
      S.drain_rate = M.num(v[i])
    else
      S[name] = M.whole(v[i])
    end
    M.stored[name] = S[name]
  end
end

--- True if P:stats is whole. A revision is never below the one its epoch began with.
function M.load_stats()
  M.has_more = nil
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
  local put = {}
  for name, value in pairs(S) do
    if value ~= M.stored[name] then
      put[#put + 1] = name
      if name == 'epoch' then
        put[#put + 1] = value
      else
        put[#put + 1] = string.format(name == 'drain_rate' and '%.6f' or '%.0f', value)
      end
    end
  end
  if #put > 0 then redis.call('HSET', K.stats, unpack(put)) end
end

--- The fleet's members, caps or flags changed: whoever keeps a copy fetches a new one.
function M.fleet_changed()
  M.more_stats()
  S.fleet_version = S.fleet_version + 1
end

--- Adds to a counter of a hash that no decision depends on. One that is no number begins anew.
function M.bump(key, field, by)
  local n = (M.whole(redis.call('HGET', key, field)) or 0) + by
  redis.call('HSET', key, field, M.int(n))
  return n
end
