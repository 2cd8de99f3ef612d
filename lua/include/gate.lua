--- @include "stats"
--- @rarely "broken"
--- @rarely "mark"
--- What is kept of a worker in four hashes, as one record: P:gate (`incarnation|cap|closed|url`), P:inflight (admitted
--- requests; the same fields as P:gate), P:reserved (prompt blocks of live leases) and P:route (what routing remembers:
--- revision of the last choice, KV blocks and prefill blocks last known). Read together, written together by
--- `flush_gates`; `changed` holds the workers of which something changed, by hash.
M.records, M.changed = {}, { gate = {}, inflight = {}, reserved = {}, route = {} }

local function split(w, gate, inflight, reserved, route)
  local inc, cap, closed, url = string.match(gate, '^(%d+%-%w+)|(%d*)|(b?d?e?s?x?)|(.*)$')
  local n, most = M.whole(inflight), cap ~= '' and M.whole(cap) or nil
  if not inc or not n or (cap ~= '' and not most) then M.broken('gate or count of ' .. w) end
  local chosen, used, prefill = string.match(route or '', '^(%d+)|(%d+)|(%d+)$')
  return {
    inc = inc, cap = most, closed = closed, url = url, n = n, reserved = M.whole(reserved) or 0,
    chosen = tonumber(chosen) or 0, used = tonumber(used) or 0, prefill = tonumber(prefill) or 0,
  }
end

--- Reads many, in four commands (for each thousand: Lua's stack takes no more than some thousand values).
function M.warm_workers(names)
  local ask = {}
  for _, w in ipairs(names) do
    if M.records[w] == nil then ask[#ask + 1] = w end
  end
  if #ask == 0 then return end
  for from = 1, #ask, 1000 do
    local to = math.min(from + 999, #ask)
    local gates = redis.call('HMGET', K.gate, unpack(ask, from, to))
    local counts = redis.call('HMGET', K.inflight, unpack(ask, from, to))
    local reserved = redis.call('HMGET', K.reserved, unpack(ask, from, to))
    local routes = redis.call('HMGET', K.route, unpack(ask, from, to))
    for i, gate in ipairs(gates) do
      local w = ask[from + i - 1]
      M.records[w] = gate and split(w, gate, counts[i], reserved[i], routes[i])
    end
  end
end

--- A worker's record, or false if it has no gate.
function M.gate(w)
  if M.records[w] == nil then M.warm_workers({ w }) end
  return M.records[w]
end

--- A record as the value of one of the four hashes.
local function value(name, g)
  if name == 'inflight' then return M.int(g.n) end
  if name == 'reserved' then return M.int(g.reserved) end
  if name == 'route' then return string.format('%d|%d|%d', g.chosen, math.min(g.used, M.MOST), math.min(g.prefill, M.MOST)) end
  return g.inc .. '|' .. (g.cap and M.int(g.cap) or '') .. '|' .. g.closed .. '|' .. g.url
end

function M.flush_gates()
  for name, workers in pairs(M.changed) do
    if next(workers) then
      local put, gone = {}, {}
      for w in pairs(workers) do
        local g = M.records[w]
        if g then
          put[#put + 1] = w
          put[#put + 1] = value(name, g)
        else
          gone[#gone + 1] = w
        end
      end
      if #put > 0 then redis.call('HSET', K[name], unpack(put)) end
      if #gone > 0 then redis.call('HDEL', K[name], unpack(gone)) end
    end
  end
end

function M.has(g, letter)
  return string.find(g.closed, letter, 1, true) ~= nil
end

--- Live: neither draining, nor engine down, nor expired.
function M.live(g)
  return not string.find(g.closed, '[dex]')
end
