--- @include "busy"
--- @include "place"
--- Recomputes a worker's busy flag and what routing knows of its load. The caller places it afterwards.
local function recompute(w, key, h)
  local busy, reason, due, blocks, tokens = judge(h)
  mark(w, 'b', busy, reason)
  redis.call(busy and 'SADD' or 'SREM', K.busy, w)
  if due then redis.call('ZADD', K.due, int(due), w) else redis.call('ZREM', K.due, w) end
  local flag = busy and '1' or '0'
  -- A hash that has expired stays gone.
  if next(h) and (h.busy ~= flag or h.busy_reason ~= reason) then
    redis.call('HSET', key, 'busy', flag, 'busy_reason', reason)
  end
  local chosen = route(w)
  save_route(w, chosen, blocks, math.ceil(tokens / setting('kv_block_size', 16)))
  return busy
end
