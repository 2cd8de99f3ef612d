--- @include "num"
--- P:stats in memory: `S`. Numbers, but for the epoch. What changed is written by `save_stats`.
local STATS = {
  'epoch', 'revision', 'born', 'heard', 'healing_until', 'grace_until', 'away_ms', 'inflight_total', 'live', 'live_busy',
  'fleet_version', 'admitted', 'released', 'drain_rate', 'drain_ms', 'shed_ms', 'shed_now', 'shed_before',
}
--- Without these the state cannot be trusted.
local VITAL = { 'epoch', 'revision', 'inflight_total', 'live', 'live_busy' }
local S, stored = {}, {}

local function stat_text(name)
  if name == 'epoch' then return S.epoch end
  return string.format(name == 'drain_rate' and '%.6f' or '%.0f', S[name])
end

local function save_stats()
  local put = {}
  for _, name in ipairs(STATS) do
    if S[name] and S[name] ~= stored[name] then
      put[#put + 1] = name
      put[#put + 1] = stat_text(name)
    end
  end
  if #put > 0 then redis.call('HSET', K.stats, unpack(put)) end
end

--- True if P:stats is whole.
local function load_stats()
  local v = redis.call('HMGET', K.stats, unpack(STATS))
  for i, name in ipairs(STATS) do
    if name == 'epoch' then S.epoch = v[i] or nil else S[name] = num(v[i]) end
    stored[name] = S[name]
  end
  for _, name in ipairs(VITAL) do
    if not S[name] then return false end
  end
  return S.inflight_total >= 0 and S.live >= 0 and S.live_busy >= 0
end
