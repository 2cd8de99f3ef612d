#!lua flags=allow-oom
--[[ The index of models, and the fleet's own record: one key a call.
KEYS[1]      <namespace>:models (touch, list) or <namespace>:meta (meta)
ARGV[1]      what:
             touch  ARGV[2] model: a worker of it is alive
             list   ARGV[2] retention in ms: forgets models not seen for so long, returns the others
             meta   creates the record if it is missing
returns      touch {now} · list {now, {(model, last seen)*}} · meta {now, created, schema} ]]
--- @include "clock"
--- @include "num"
local key, what = KEYS[1], ARGV[1]
-- Somebody wrote over it: those who know say it again.
local is = redis.call('TYPE', key).ok
if is ~= 'none' and is ~= (what == 'meta' and 'hash' or 'zset') then redis.call('DEL', key) end
if what == 'touch' then
  redis.call('ZADD', key, M.int(now), ARGV[2])
  return { now }
elseif what == 'list' then
  redis.call('ZREMRANGEBYSCORE', key, '-inf', M.int(now - tonumber(ARGV[2])))
  return { now, redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') }
end
redis.call('HSETNX', key, 'created', M.int(now))
redis.call('HSETNX', key, 'schema', '1')
return { now, tonumber(redis.call('HGET', key, 'created')), tonumber(redis.call('HGET', key, 'schema')) }
