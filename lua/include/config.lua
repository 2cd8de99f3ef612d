--- @include "applied"
--- @include "check"
--- @include "journal"
--- @include "mark"
--- @include "stats"
--- Puts one value into force (false: unset), with a new config_version and a line of history.
--- What the change means for each worker is recomputed by that worker's next report, or by the sweep.
function M.put_in_force(field, value, source)
  local old = M.applied()[field]
  if old == value then return false end
  if value then redis.call('HSET', K.applied, field, value) else redis.call('HDEL', K.applied, field) end
  M.in_force[field] = value
  local version = M.bump(K.applied, 'config_version', 1)
  S.revision = S.revision + 1
  M.journal(K.history, 1000, 'version', M.int(version), 'field', field, 'old', old or '', 'new', value or '', 'source', source)
  M.transition('config', field, (old or '') .. ' -> ' .. (value or ''))
  return true
end

--- Every worker is to be recomputed: up to 256 by the next sweep, the rest by their own reports.
function M.all_due()
  for _, w in ipairs(redis.call('ZRANGE', K.workers, 0, 255)) do redis.call('ZADD', K.due, M.int(now), w) end
end

--- Notices what was written to P:config by hand. A refused value leaves the one in force, and is shown as
--- `error:<field>`, once per value; whoever keeps a copy of that fetches a new one.
function M.notice()
  local v = redis.pcall('HMGET', K.config, unpack(M.FIELDS))
  local wrong = v.err and 'not a hash' or false
  local shown = redis.call('HGET', K.applied, 'error:config')
  if wrong ~= shown then
    if not wrong then
      redis.call('HDEL', K.applied, 'error:config')
    else
      redis.call('HSET', K.applied, 'error:config', wrong)
      M.transition('refused', 'config', wrong)
    end
    M.fleet_changed()
  end
  if wrong then return end
  local changed, told = false, false
  local errors = {}
  for i, field in ipairs(M.FIELDS) do errors[i] = 'error:' .. field end
  local refused = redis.call('HMGET', K.applied, unpack(errors))
  for i, field in ipairs(M.FIELDS) do
    local value, bad = v[i], false
    if value and value ~= M.applied()[field] and not M.legal(field, value) then
      bad = string.sub(value, 1, 200)
      if bad ~= refused[i] then
        redis.call('HSET', K.applied, errors[i], bad)
        M.transition('refused', field, bad)
        told = true
      end
    elseif M.put_in_force(field, value, 'redis') then
      changed = true
    end
    if refused[i] and not bad then
      redis.call('HDEL', K.applied, errors[i])
      told = true
    end
  end
  if told then M.fleet_changed() end
  if changed then M.all_due() end
end
