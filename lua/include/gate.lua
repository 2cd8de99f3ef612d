--- @include "broken"
--- @include "cache"
--- @include "stats"
--- @include "journal"
--- P:gate and P:inflight: `incarnation|cap|closed|url`, and the admitted requests, per worker. Both have the same
--- fields. P:reserved and P:route: what routing knows of each.
M.GATE, M.INFLIGHT = M.cached(K.gate), M.cached(K.inflight)
M.RESERVED, M.ROUTE = M.cached(K.reserved), M.cached(K.route)
M.parsed = {}

--- A worker's gate as { inc, cap (nil = none), closed, url }, or false if it has none.
function M.gate(w)
  local g = M.parsed[w]
  if g == nil then
    local v = M.get(M.GATE, w)
    g = false
    if v then
      local inc, cap, closed, url = string.match(v, '^(%d+%-%w+)|(%d*)|(b?d?e?s?x?)|(.*)$')
      if not inc then M.broken('gate of ' .. w) end
      g = { inc = inc, cap = M.whole(cap), closed = closed, url = url }
      if cap ~= '' and not g.cap then M.broken('gate of ' .. w) end
    end
    M.parsed[w] = g
  end
  return g
end

function M.save_gate(w)
  local g = M.parsed[w]
  M.set(M.GATE, w, g.inc .. '|' .. (g.cap and M.int(g.cap) or '') .. '|' .. g.closed .. '|' .. g.url)
end

--- Admitted requests of a worker that has a gate.
function M.count(w)
  local n = M.whole(M.get(M.INFLIGHT, w))
  if not n then M.broken('count of ' .. w) end
  return n
end

function M.has(g, letter)
  return string.find(g.closed, letter, 1, true) ~= nil
end

--- Live: neither draining, nor engine down, nor expired.
function M.live(g)
  return not string.find(g.closed, '[dex]')
end

--- Changes the closed letters, and with them the sums of live and of busy live workers that a refusal's reason needs.
function M.set_closed(g, closed)
  local live, busy = M.live(g), M.has(g, 'b')
  g.closed = closed
  local live_now, busy_now = M.live(g), M.has(g, 'b')
  S.live = S.live + (live_now and 1 or 0) - (live and 1 or 0)
  S.live_busy = S.live_busy + (live_now and busy_now and 1 or 0) - (live and busy and 1 or 0)
end

--- Sets or clears one of the letters b d e s x. True if that changed the gate.
function M.mark(w, letter, on, why)
  local g = M.gate(w)
  if M.has(g, letter) == on then return false end
  local closed = ''
  for l in string.gmatch('bdesx', '.') do
    if (l == letter and on) or (l ~= letter and M.has(g, l)) then closed = closed .. l end
  end
  M.set_closed(g, closed)
  M.save_gate(w)
  S.revision = S.revision + 1
  M.fleet_changed()
  local said = on and { b = 'busy', d = 'draining', e = 'engine_down', s = 'skipped', x = 'left' }
    or { b = 'free', d = 'resumed', e = 'engine_up', x = 'joined' }
  if said[letter] then M.transition(said[letter], w, why) end
  return true
end

--- A gate of another incarnation, closed as expired, with nothing in flight.
function M.new_gate(w, inc, cap, url)
  local g = M.gate(w)
  if g then
    M.set_closed(g, 'x')
    S.inflight_total = S.inflight_total - M.count(w)
  elseif M.get(M.INFLIGHT, w) then
    M.broken('count without gate')
  end
  M.parsed[w] = { inc = inc, cap = cap, closed = 'x', url = url }
  M.save_gate(w)
  M.set(M.INFLIGHT, w, '0')
  M.set(M.RESERVED, w, '0')
  S.revision = S.revision + 1
  M.fleet_changed()
end

--- Takes a worker out of every index. Its own hash stays until its TTL: it remembers the incarnation.
function M.forget(w)
  local g = M.gate(w)
  if g then
    M.set_closed(g, 'x')
    S.inflight_total = S.inflight_total - M.count(w)
  end
  M.parsed[w] = false
  for _, c in ipairs({ M.GATE, M.INFLIGHT, M.RESERVED, M.ROUTE }) do M.set(c, w, false) end
  for _, key in ipairs({ K.workers, K.skips, K.due }) do redis.call('ZREM', key, w) end
  redis.call('SREM', K.busy, w)
  M.place(w)
  S.revision = S.revision + 1
  M.fleet_changed()
end

function M.flush_gates()
  for _, c in ipairs({ M.GATE, M.INFLIGHT, M.RESERVED, M.ROUTE }) do M.flush(c) end
end
