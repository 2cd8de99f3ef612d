--- @include "gate"
--- @include "applied"
--- The only writer of P:eligible: after every change of a worker, looking at all conditions.
--- Score (lowest is chosen first): the load, ties to the least recently chosen. Exact in a double:
--- 24 bits of load above 29 bits of the revision of the last choice.
M.LOAD_MAX, M.CHOSEN = 16777215, 536870912
--- What `flush_places` is to write: worker -> score, or false (not eligible).
M.placed = {}

--- What routing remembers of a worker: revision of its last choice, KV blocks and prefill blocks last known.
function M.route(w)
  local chosen, used, prefill = string.match(M.get(M.ROUTE, w) or '', '^(%d+)|(%d+)|(%d+)$')
  return tonumber(chosen) or 0, tonumber(used) or 0, tonumber(prefill) or 0
end

function M.save_route(w, chosen, used, prefill)
  local most = 9007199254740991
  M.set(M.ROUTE, w, string.format('%.0f|%.0f|%.0f', chosen, math.min(used, most), math.min(prefill, most)))
end

function M.score(w, g)
  local mode = M.applied().router_mode
  if mode == 'random' or mode == 'power-of-two' or mode == 'direct' then return 0 end
  local chosen, used, prefill = M.route(w)
  if mode == 'round-robin' then return chosen end
  local load
  if mode == 'kv' then
    local reserved = M.applied().track_active_blocks ~= 'false' and M.whole(M.get(M.RESERVED, w)) or 0
    load = math.max(used, reserved) + prefill
  elseif g.cap then
    load = math.floor(M.count(w) * 1048576 / g.cap)
  else
    load = M.count(w) * 1024
  end
  return math.min(load, M.LOAD_MAX) * M.CHOSEN + chosen % M.CHOSEN
end

function M.place(w)
  local g = M.gate(w)
  local open = g and g.closed == '' and (not g.cap or M.count(w) < g.cap)
  M.placed[w] = open and M.score(w, g) or false
  if M.moved then M.moved(w, M.placed[w]) end
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
