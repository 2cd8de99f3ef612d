--- @include "busy"
--- @include "mark"
--- @include "place"
--- Recomputes a worker's busy flag and what routing knows of its load. The caller places it afterwards.
function M.recompute(w, key, h)
  -- The clock went back: signals from the future are as of now.
  for field, text in pairs(h) do
    if string.find(field, '%..*_ms$') and (M.whole(text) or 0) > now then
      h[field] = M.int(now)
      redis.call('HSET', key, field, h[field])
    end
  end
  local busy, reason, due, used, tokens = M.judge(h)
  M.mark(w, 'b', busy, reason)
  redis.call(busy and 'SADD' or 'SREM', K.busy, w)
  if due then redis.call('ZADD', K.due, M.int(due), w) else redis.call('ZREM', K.due, w) end
  local flag = busy and '1' or '0'
  -- A hash that has expired stays gone.
  if next(h) and (h.busy ~= flag or h.busy_reason ~= reason) then
    redis.call('HSET', key, 'busy', flag, 'busy_reason', reason)
  end
  local g = M.gate(w)
  g.used, g.prefill = used, math.ceil(tokens / M.setting('kv_block_size', 16))
  M.changed.route[w] = true
  return busy
end
