--- @include "applied"
--- @include "place"
--- Chooses from P:eligible for one admission `a` ({ pin, exclude (a set), excluded (its size) }).
--- A worker, or nil if there is none for it. O(log workers).

--- Modes that follow the score: the best of P:eligible are read once (`M.best`, in order), as many as the group can use
--- up, and kept in order while the group changes them.
function M.before(a, b)
  return a.score < b.score or (a.score == b.score and a.worker < b.worker)
end

function M.read_best(most)
  M.flush_places()
  local v = redis.call('ZRANGE', K.eligible, 0, most - 1, 'WITHSCORES')
  M.best, M.cut = {}, #v == 2 * most
  local names = {}
  for i = 1, #v, 2 do
    names[#names + 1] = v[i]
    M.best[#names] = { worker = v[i], score = tonumber(v[i + 1]) }
  end
  M.warm_workers(names)
  M.until_ms = {}
  local t = #names > 0 and redis.call('ZMSCORE', K.workers, unpack(names)) or {}
  for i, w in ipairs(names) do M.until_ms[w] = t[i] and tonumber(t[i]) end
end

--- Keeps `M.best` in order when a worker is placed anew. One that falls behind the last that was read is not kept:
--- others that were not read may come before it.
function M.moved(w, score)
  if not M.best then return end
  for i, b in ipairs(M.best) do
    if b.worker == w then
      table.remove(M.best, i)
      break
    end
  end
  if not score then return end
  local new, lo, hi = { worker = w, score = score }, 1, #M.best + 1
  if M.cut and (hi == 1 or M.before(M.best[hi - 1], new)) then return end
  while lo < hi do
    local mid = math.floor((lo + hi) / 2)
    if M.before(M.best[mid], new) then lo = mid + 1 else hi = mid end
  end
  table.insert(M.best, lo, new)
end

function M.best_for(a, most)
  if not M.best or (#M.best <= a.excluded and M.cut) then M.read_best(most) end
  for _, b in ipairs(M.best) do
    if not a.exclude[b.worker] then return b.worker end
  end
end

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
  return M.count(other) < M.count(one) and other or one
end

--- most: how many of the best this group can use up.
function M.pick(a, most)
  local mode = M.applied().router_mode
  if mode == 'direct' then
    M.flush_places()
    if a.pin ~= '' and not a.exclude[a.pin] and redis.call('ZSCORE', K.eligible, a.pin) then return a.pin end
    return nil
  end
  if mode == 'random' or mode == 'power-of-two' then return M.drawn_for(a, mode == 'power-of-two') end
  return M.best_for(a, most)
end
