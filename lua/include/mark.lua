--- @include "broken"
--- @include "journal"
--- @include "place"
--- What changes a gate other than its counts.

--- The fleet's members, caps or flags changed: whoever keeps a copy fetches a new one.
function M.fleet_changed()
  M.more_stats()
  S.fleet_version = S.fleet_version + 1
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
  M.changed.gate[w] = true
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
    S.inflight_total = S.inflight_total - g.n
  elseif redis.call('HEXISTS', K.inflight, w) == 1 then
    M.broken('count without gate')
  end
  local new = { inc = inc, cap = cap, closed = 'x', url = url, n = 0, reserved = 0, chosen = 0, used = 0, prefill = 0 }
  if g then new.chosen, new.used, new.prefill = g.chosen, g.used, g.prefill end
  M.records[w] = new
  for _, name in ipairs({ 'gate', 'inflight', 'reserved' }) do M.changed[name][w] = true end
  S.revision = S.revision + 1
  M.fleet_changed()
end

--- Takes a worker out of every index. Its own hash stays until its TTL: it remembers the incarnation.
function M.forget(w)
  local g = M.gate(w)
  if g then
    M.set_closed(g, 'x')
    S.inflight_total = S.inflight_total - g.n
  end
  M.records[w] = false
  for _, workers in pairs(M.changed) do workers[w] = true end
  for _, key in ipairs({ K.workers, K.skips, K.due }) do redis.call('ZREM', key, w) end
  redis.call('SREM', K.busy, w)
  M.place(w)
  S.revision = S.revision + 1
  M.fleet_changed()
end
