#!lua flags=no-writes
--[[ A page of the state, for frontends' copies and operators. Read-only: runs on a full or a read-only server too.
KEYS[1..17]  the model's keys (include/shard)
ARGV[1]      cursor, '0' at first
returns      {next cursor ('0': last page), now, {stats...}, {config in force...}, {frontend, alive until...},
              {worker, gate, in flight...}}
cost         a page is about 256 workers ]]
--- @include "clock"
--- @include "shard"
local page = redis.call('HSCAN', K.gate, ARGV[1], 'COUNT', 256)
local workers, found = {}, page[2]
local names = {}
for i = 1, #found, 2 do names[#names + 1] = found[i] end
local counts = #names > 0 and redis.call('HMGET', K.inflight, unpack(names)) or {}
for i, w in ipairs(names) do
  workers[#workers + 1] = w
  workers[#workers + 1] = found[2 * i]
  workers[#workers + 1] = counts[i] or '0'
end
return {
  page[1], now, redis.call('HGETALL', K.stats), redis.call('HGETALL', K.applied),
  redis.call('ZRANGE', K.frontends, 0, 255, 'WITHSCORES'), workers,
}
