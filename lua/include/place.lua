--- @include "gate"
--- @include "applied"
--- The only writer of P:eligible: after every change of a worker, looking at all conditions.
--- Score (lowest is chosen first): the load, ties to the least recently chosen. Exact in a double:
--- 24 bits of load above 29 bits of the revision of the last choice.
M.LOAD_MAX, M.CHOSEN = 16777215, 536870912
--- What `flush_places` is to write: worker -> score, or false (not eligible). `best`: see pick.
M.placed, M.best, M.moved = {}, false, false

function M.score(g)
  local mode = M.applied().router_mode
  if mode == 'random' or mode == 'power-of-two' or mode == 'direct' then return 0 end
  if mode == 'round-robin' then return g.chosen end
  local load
  if mode == 'kv' then
    local reserved = M.applied().track_active_blocks ~= 'false' and g.reserved or 0
    load = math.max(g.used, reserved) + g.prefill
  elseif g.cap then
    load = math.floor(g.n * 1048576 / g.cap)
  else
    load = g.n * 1024
  end
  return math.min(load, M.LOAD_MAX) * M.CHOSEN + g.chosen % M.CHOSEN
end

function M.place(w)
  local g = M.gate(w)
  local score = g and g.closed == '' and (not g.cap or g.n < g.cap) and M.score(g)
  M.placed[w] = score
  if M.best then M.moved(w, score) end
end

function M.flush_places()
  local put, gone = {}, {}
  for w, score in pairs(M.placed) do
    if score then
      put[#put + 1] = M.int(score)
      put[#put + 1] = w
    else
      gone[#gone + 1] = w
    end
  end
  if #put > 0 then redis.call('ZADD', K.eligible, unpack(put)) end
  if #gone > 0 then redis.call('ZREM', K.eligible, unpack(gone)) end
  M.placed = {}
end
