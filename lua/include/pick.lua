--- @include "applied"
--- @include "place"
--- @rarely "draw"
--- Chooses from P:eligible for one admission `a` ({ pin, exclude (a set), excluded (its size) }).
--- A worker, or nil if there is none for it. O(log workers).

--- Modes that follow the score: the best of P:eligible are read once (`M.best`, in order from `M.head` on), as many as
--- the group can use up, and kept in order while the group changes them.
function M.before(a, b)
  return a.score < b.score or (a.score == b.score and a.worker < b.worker)
end

function M.read_best(most)
  M.flush_places()
  local v, names, best = redis.call('ZRANGE', K.eligible, 0, most - 1, 'WITHSCORES'), {}, {}
  for i = 1, #v, 2 do
    names[#names + 1] = v[i]
    best[#names] = { worker = v[i], score = tonumber(v[i + 1]) }
  end
  M.best, M.head, M.size, M.cut = best, 1, #best, #best == most
  M.warm_workers(names)
end

--- Keeps `M.best` in order when a worker is placed anew. One that falls behind the last that was read is not kept:
--- others that were not read may come before it.
function M.moved(w, score)
  local best = M.best
  if M.head <= M.size and best[M.head].worker == w then
    M.head = M.head + 1
  else
    for i = M.head, M.size do
      if best[i].worker == w then
        table.remove(best, i)
        M.size = M.size - 1
        break
      end
    end
  end
  if not score then return end
  local new, at = { worker = w, score = score }, M.size + 1
  if M.cut and (at == M.head or M.before(best[M.size], new)) then return end
  while at > M.head and M.before(new, best[at - 1]) do at = at - 1 end
  table.insert(best, at, new)
  M.size = M.size + 1
end

function M.best_for(a, most)
  if not M.best or (M.size - M.head < a.excluded and M.cut) then M.read_best(most) end
  for i = M.head, M.size do
    local w = M.best[i].worker
    if not a.exclude[w] then return w end
  end
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
