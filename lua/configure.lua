#!lua
--[[ Writes fields of P:config and puts them into force: all of them or none. `seed` (a flag's value) writes a field once
in the life of P:config:applied, and only if it is not set, so that a field an operator removed stays removed.
KEYS[1..17]  the model's keys (include/shard)
ARGV[1]      source: cli, api or seed     ARGV[2..]  (field, value)*; '' unsets
returns      {'ok', config_version, (field, value in force)*} · {'invalid', field, value} · {'unknown'}: no such model ]]
--- @include "run"
--- @include "config"
--- @include "mark"
local source = ARGV[1]

local function main()
  if redis.call('EXISTS', K.stats) == 0 then return { 'unknown' } end
  M.prologue(false, true, 0, 'configure')
  local type_of = redis.call('TYPE', K.config).ok
  if type_of ~= 'none' and type_of ~= 'hash' then return { 'invalid', 'config', 'not a hash' } end
  for i = 2, #ARGV, 2 do
    if not M.KINDS[ARGV[i]] or (ARGV[i + 1] ~= '' and not M.legal(ARGV[i], ARGV[i + 1])) then
      return { 'invalid', string.sub(ARGV[i], 1, 200), string.sub(ARGV[i + 1], 1, 200) }
    end
  end
  local changed = false
  for i = 2, #ARGV, 2 do
    local field, value = ARGV[i], ARGV[i + 1] ~= '' and ARGV[i + 1]
    local write = true
    if source == 'seed' then
      write = redis.call('HSETNX', K.applied, 'seeded:' .. field, value or '') == 1
        and redis.call('HEXISTS', K.config, field) == 0
    end
    if write then
      if value then redis.call('HSET', K.config, field, value) else redis.call('HDEL', K.config, field) end
      if redis.call('HDEL', K.applied, 'error:' .. field) == 1 then M.fleet_changed() end
      if M.put_in_force(field, value, source) then changed = true end
    end
  end
  if changed then M.all_due() end
  local reply = { 'ok', M.whole(redis.call('HGET', K.applied, 'config_version')) or 0 }
  for _, field in ipairs(M.FIELDS) do
    local value = M.applied()[field]
    if value then
      reply[#reply + 1] = field
      reply[#reply + 1] = value
    end
  end
  return reply
end

return M.run(main, true, 0, 'configure')
