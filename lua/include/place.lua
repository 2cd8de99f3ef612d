--- @include "gate"
--- @include "applied"
--- The only writer of P:eligible: after every change of a worker, looking at all conditions.
--- Score (lowest is chosen first): the load, ties to the least recently chosen. Exact in a double:
--- 24 bits of load above 29 bits of the number of the last choice.
local LOAD_MAX, CHOSEN = 16777215, 536870912

--- What routing remembers of a worker: number of its last choice, KV blocks and prefill blocks last known.
local function route(w)
  local chosen, blocks, prefill = string.match(get(ROUTE, w) or '', '^(%d+)|(%d+)|(%d+)$')
  return tonumber(chosen) or 0, tonumber(blocks) or 0, tonumber(prefill) or 0
end

local function save_route(w, chosen, blocks, prefill)
  set(ROUTE, w, int(chosen) .. '|' .. int(blocks) .. '|' .. int(prefill))
end

local function score(w, g)
  local mode = applied().router_mode
  if mode == 'random' or mode == 'power-of-two' or mode == 'direct' then return 0 end
  local chosen, blocks, prefill = route(w)
  if mode == 'round-robin' then return chosen end
  local load
  if mode == 'kv' then
    local reserved = applied().track_active_blocks ~= 'false' and num(get(RESERVED, w)) or 0
    load = math.max(blocks, reserved) + prefill
  elseif g.cap then
    load = math.floor(count(w) * 1048576 / g.cap)
  else
    load = count(w) * 1024
  end
  return math.min(load, LOAD_MAX) * CHOSEN + chosen % CHOSEN
end

local function place(w)
  local g = gate(w)
  if g and g.closed == '' and (not g.cap or count(w) < g.cap) then
    redis.call('ZADD', K.eligible, int(score(w, g)), w)
  else
    redis.call('ZREM', K.eligible, w)
  end
end
