--- @include "applied"
--- @include "gate"
--- Chooses from P:eligible for one admission `a` ({ pin, exclude (a set), excluded (its size) }). O(log workers).
--- A worker, or nil if there is none for it.
local random_state

--- Whole random numbers in [0, n). Park and Miller's generator: exact in doubles, seeded by the caller.
local function random(n)
  random_state = random_state * 16807 % 2147483647
  return random_state % n
end

--- The first of P:eligible from rank `from` on that `a` does not exclude, wrapping once.
local function first_from(from, a, size)
  local last = from + a.excluded
  local near = redis.call('ZRANGE', K.eligible, from, last)
  if last >= size and from > 0 then
    for _, w in ipairs(redis.call('ZRANGE', K.eligible, 0, math.min(from - 1, last - size))) do near[#near + 1] = w end
  end
  for _, w in ipairs(near) do
    if not a.exclude[w] then return w end
  end
end

local function pick(a)
  local mode = applied().router_mode
  if mode == 'direct' then
    if a.pin ~= '' and not a.exclude[a.pin] and redis.call('ZSCORE', K.eligible, a.pin) then return a.pin end
    return nil
  end
  if mode == 'random' or mode == 'power-of-two' then
    local size = redis.call('ZCARD', K.eligible)
    if size == 0 then return nil end
    local one = first_from(random(size), a, size)
    if mode == 'random' or size == 1 or not one then return one end
    local two = first_from(random(size), a, size)
    if two == one then
      local rank = redis.call('ZRANK', K.eligible, one)
      two = first_from((rank + 1) % size, a, size)
    end
    if not two or two == one or not gate(one) then return one end
    if not gate(two) then return two end
    return count(two) < count(one) and two or one
  end
  return first_from(0, a, 0)
end
