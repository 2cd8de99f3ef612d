--- @include "gate"
--- @include "place"
--- A frontend's leases: `id -> worker|incarnation|tokens` (split from the right: names may hold a bar).
--- Counters change only together with the lease that explains them.
local touched = {}

--- A lease hash with the count that P:seq keeps of it.
local function leases(key, n)
  local c = cached(key)
  c.n = n
  return c
end

local function blocks(tokens)
  return math.ceil(tokens / setting('kv_block_size', 16))
end

--- One more (by = 1) or less (by = -1) on a worker whose gate is of that incarnation.
local function step(w, tokens, by)
  local n = count(w) + by
  S.inflight_total = S.inflight_total + by
  if n < 0 or S.inflight_total < 0 then broken('count of ' .. w .. ' below zero') end
  set(INFLIGHT, w, int(n))
  local reserved = (num(get(RESERVED, w)) or 0) + by * blocks(tokens)
  set(RESERVED, w, int(n == 0 and 0 or math.max(0, reserved)))
  S.revision = S.revision + 1
  touched[w] = true
end

--- Makes a lease; it counts if the gate is of its incarnation. An id that exists already: nothing.
local function add(held, id, w, inc, tokens)
  if get(held, id) then return end
  set(held, id, w .. '|' .. inc .. '|' .. int(tokens))
  held.n = held.n + 1
  local g = gate(w)
  if g and g.inc == inc then step(w, tokens, 1) end
end

local function read_lease(held, id)
  local v = get(held, id)
  if not v then return nil end
  local w, inc, tokens = string.match(v, '^(.*)|([^|]*)|(%d+)$')
  if not w then broken('lease ' .. id) end
  return w, inc, tonumber(tokens)
end

--- Ends a lease. True if it was there; an unknown id: nothing.
local function del(held, id)
  local w, inc, tokens = read_lease(held, id)
  if not w then return false end
  set(held, id, false)
  held.n = held.n - 1
  local g = gate(w)
  if g and g.inc == inc then
    step(w, tokens, -1)
    S.released = (S.released or 0) + 1
  end
  return true
end

--- Places every worker whose count moved; one that is gone and has none left is forgotten.
local function settle()
  for w in pairs(touched) do
    local g = gate(w)
    if g and has(g, 'x') and count(w) == 0 and not redis.call('ZSCORE', K.workers, w) then
      forget(w)
    else
      place(w)
    end
  end
  touched = {}
end

--- Releases per second, as an average that forgets with a time constant of 5 s.
local function drained(k)
  local dt = math.max(0, now - (S.drain_ms or now))
  S.drain_rate = (S.drain_rate or 0) * math.exp(-dt / 5000) + k / 5
  S.drain_ms = now
end
