--- @include "shard"
--- @include "num"
--- A P:seq entry as epoch, seq, leases; nothing if it is missing or garbled.
local function read_seq(f)
  local epoch, seq, n = string.match(redis.call('HGET', K.seq, f) or '', '^([^|]+)|(%d+)|(%d+)$')
  return epoch, tonumber(seq), tonumber(n)
end

local function write_seq(f, epoch, seq, n)
  redis.call('HSET', K.seq, f, epoch .. '|' .. int(seq) .. '|' .. int(n))
end
