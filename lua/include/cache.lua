--- @include "shard"
--- A hash whose fields are read once and written once (`flush`). A field that does not exist is `false`.
function M.cached(key)
  return { key = key, value = {}, dirty = {} }
end

function M.get(c, field)
  local v = c.value[field]
  if v == nil then
    v = redis.call('HGET', c.key, field)
    c.value[field] = v
  end
  return v
end

--- `value` false deletes the field.
function M.set(c, field, value)
  c.value[field] = value
  c.dirty[field] = true
end

--- Reads many fields in one command.
function M.warm(c, fields)
  if #fields == 0 then return end
  local got = redis.call('HMGET', c.key, unpack(fields))
  for i, f in ipairs(fields) do c.value[f] = got[i] end
end

function M.flush(c)
  local put, gone = {}, {}
  for f in pairs(c.dirty) do
    if c.value[f] then
      put[#put + 1] = f
      put[#put + 1] = c.value[f]
    else
      gone[#gone + 1] = f
    end
  end
  if #put > 0 then redis.call('HSET', c.key, unpack(put)) end
  if #gone > 0 then redis.call('HDEL', c.key, unpack(gone)) end
  c.dirty = {}
end
