--- @include "num"
--- A P:seq entry as epoch, seq, leases; nothing if it is missing or garbled.
function M.read_seq(f)
  local epoch, seq, n = string.match(redis.call('HGET', K.seq, f) or '', '^([^|]+)|(%d+)|(%d+)$')
  seq, n = M.whole(seq), M.whole(n)
  if seq and n then return epoch, seq, n end
end

function M.write_seq(f, epoch, seq, n)
  redis.call('HSET', K.seq, f, epoch .. '|' .. M.int(seq) .. '|' .. M.int(n))
end
