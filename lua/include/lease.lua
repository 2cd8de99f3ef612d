--- @include "cache"
--- @include "gate"
--- @include "place"
--- A frontend's leases: `id -> worker|incarnation|tokens` (split from the right: names may hold a bar).
--- Counters change only together with the lease that explains them.
--- Workers whose count moved, to be placed by `settle`.
M.touched = {}

--- A lease hash with the count that P:seq keeps of it.
function M.leases(key, n)
  local c = M.cached(key)
  c.n = n
  return c
end

function M.blocks(tokens)
  return math.ceil(tokens / M.setting('kv_block_size', 16))
end

--- One more (by = 1) or less (by = -1) on a worker whose gate is of that incarnation.
function M.step(w, g, tokens, by)
  g.n = g.n + by
  S.inflight_total = S.inflight_total + by
  if g.n < 0 or S.inflight_total < 0 then M.broken('count of ' .. w .. ' below zero') end
  g.reserved = g.n == 0 and 0 or math.max(0, g.reserved + by * M.blocks(tokens))
  M.changed.inflight[w] = true
  M.changed.reserved[w] = true
  M.touched[w] = true
  S.revision = S.revision + 1
end

--- Makes a lease; it counts if the gate is of its incarnation. An id that exists already: nothing.
function M.add(held, id, w, inc, tokens)
  if M.get(held, id) then return end
  M.set(held, id, w .. '|' .. inc .. '|' .. M.int(tokens))
  held.n = held.n + 1
  local g = M.gate(w)
  if g and g.inc == inc then M.step(w, g, tokens, 1) end
end

--- worker, incarnation, tokens of a lease; nil if there is none.
function M.read_lease(held, id)
  local v = M.get(held, id)
  if not v then return nil end
  local w, inc, tokens = string.match(v, '^([^|]*)|([^|]*)|(%d+)$')
  if not w then w, inc, tokens = string.match(v, '^(.*)|([^|]*)|(%d+)$') end
  if not w then M.broken('lease ' .. id) end
  return w, inc, tonumber(tokens)
end

--- Ends many; an unknown id: nothing. Returns how many were there.
function M.del_all(held, ids)
  local ended, names = {}, {}
  for _, id in ipairs(ids) do
    local w, inc, tokens = M.read_lease(held, id)
    if w then
      M.set(held, id, false)
      ended[#ended + 1] = { w, inc, tokens }
      names[#names + 1] = w
    end
  end
  M.warm_workers(names)
  for _, l in ipairs(ended) do
    local g = M.gate(l[1])
    if g and g.inc == l[2] then M.step(l[1], g, l[3], -1) end
  end
  held.n = held.n - #ended
  return #ended
end

--- Places every worker whose count moved; one that is gone and has none left is forgotten.
function M.settle()
  for w in pairs(M.touched) do
    local g = M.gate(w)
    if g and g.n == 0 and M.has(g, 'x') and not redis.call('ZSCORE', K.workers, w) then
      M.forget(w)
    else
      M.place(w)
    end
  end
  M.touched = {}
end

--- k releases more: counted, and as releases per second in an average that forgets with a time constant of 5 s.
function M.released(k)
  if k == 0 then return end
  M.more_stats()
  M.bump(K.stats, 'released', k)
  local dt = math.max(0, now - (S.drain_ms or now))
  S.drain_rate = S.drain_rate * math.exp(-dt / 5000) + k / 5
  S.drain_ms = now
end
