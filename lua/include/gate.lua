--- @include "shard"
--- @include "broken"
--- @include "cache"
--- @include "stats"
--- @include "journal"
--- P:gate and P:inflight: `incarnation|cap|closed|url`, and the admitted requests, per worker. Both have the same fields.
local GATE, INFLIGHT, RESERVED, ROUTE = cached(K.gate), cached(K.inflight), cached(K.reserved), cached(K.route)
local parsed = {}

--- A worker's gate as { inc, cap (nil = none), closed, url }, or false if it has none.
local function gate(w)
  local g = parsed[w]
  if g == nil then
    local v = get(GATE, w)
    g = false
    if v then
      local inc, cap, closed, url = string.match(v, '^(%d+%-%w+)|(%d*)|(b?d?e?s?x?)|(.*)$')
      if not inc then broken('gate of ' .. w) end
      g = { inc = inc, cap = tonumber(cap), closed = closed, url = url }
    end
    parsed[w] = g
  end
  return g
end

local function save_gate(w)
  local g = parsed[w]
  set(GATE, w, g.inc .. '|' .. (g.cap and int(g.cap) or '') .. '|' .. g.closed .. '|' .. g.url)
end

--- Admitted requests of a worker that has a gate.
local function count(w)
  local n = num(get(INFLIGHT, w))
  if not n or n < 0 then broken('count of ' .. w) end
  return n
end

local function has(g, letter)
  return string.find(g.closed, letter, 1, true) ~= nil
end

--- Live: neither draining, nor engine down, nor expired.
local function live(g)
  return not string.find(g.closed, '[dex]')
end

--- Keeps the sums of live and of busy live workers, which a refusal's reason needs, while a gate changes.
local function recount(g, change)
  local before, before_busy = live(g), live(g) and has(g, 'b')
  change()
  local after, after_busy = live(g), live(g) and has(g, 'b')
  S.live = S.live + (after and 1 or 0) - (before and 1 or 0)
  S.live_busy = S.live_busy + (after_busy and 1 or 0) - (before_busy and 1 or 0)
end

local ON = { b = 'busy', d = 'draining', e = 'engine_down', s = 'skipped', x = 'left' }
local OFF = { b = 'free', d = 'resumed', e = 'engine_up', x = 'joined' }

--- Sets or clears one of the letters b d e s x. True if that changed the gate.
local function mark(w, letter, on, why)
  local g = gate(w)
  if has(g, letter) == on then return false end
  recount(g, function()
    local closed = ''
    for l in string.gmatch('bdesx', '.') do
      if (l == letter and on) or (l ~= letter and has(g, l)) then closed = closed .. l end
    end
    g.closed = closed
  end)
  save_gate(w)
  S.revision = S.revision + 1
  S.fleet_version = (S.fleet_version or 0) + 1
  local kind = on and ON[letter] or OFF[letter]
  if kind then transition(kind, w, why) end
  return true
end

--- Takes a worker out of every index. Its own hash stays until its TTL: it remembers the incarnation.
local function forget(w)
  local g = gate(w)
  if g then
    recount(g, function() g.closed = 'x' end)
    S.inflight_total = S.inflight_total - count(w)
  end
  parsed[w] = false
  for _, c in ipairs({ GATE, INFLIGHT, RESERVED, ROUTE }) do set(c, w, false) end
  for _, key in ipairs({ K.workers, K.eligible, K.skips, K.due }) do redis.call('ZREM', key, w) end
  redis.call('SREM', K.busy, w)
  S.revision = S.revision + 1
  S.fleet_version = (S.fleet_version or 0) + 1
end
