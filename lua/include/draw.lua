--- @include "applied"
--- @include "place"
--- Router modes that draw lots.
--- Whole random numbers in [0, n). Park and Miller's generator: exact in doubles, seeded by the caller.
function M.random(n)
  M.random_state = M.random_state * 16807 % 2147483647
  return M.random_state % n
end

--- The first of P:eligible from rank `from` on that `a` does not exclude, wrapping once.
function M.first_from(from, a, size)
  local last = from + a.excluded
  local near = redis.call('ZRANGE', K.eligible, from, last)
  if last >= size and from > 0 then
    for _, w in ipairs(redis.call('ZRANGE', K.eligible, 0, math.min(from - 1, last - size))) do near[#near + 1] = w end
  end
  for _, w in ipairs(near) do
    if not a.exclude[w] then return w end
  end
end

--- Modes that draw: `two`: of two distinct ones, the one with fewer in flight; a tie goes to the first.
function M.drawn_for(a, two)
  M.flush_places()
  local size = redis.call('ZCARD', K.eligible)
  if size == 0 then return nil end
  local one = M.first_from(M.random(size), a, size)
  if not two or size == 1 or not one then return one end
  local other = M.first_from(M.random(size), a, size)
  if other == one then
    other = M.first_from((redis.call('ZRANK', K.eligible, one) + 1) % size, a, size)
  end
  if not other or other == one or not M.gate(one) then return one end
  if not M.gate(other) then return other end
  return M.gate(other).n < M.gate(one).n and other or one
end
