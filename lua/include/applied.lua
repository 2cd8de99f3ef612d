--- @include "shard"
--- The configuration in force, P:config:applied, as text by field name; false = unset. Read once.
local FIELDS = {
  'active_decode_blocks_threshold', 'active_prefill_tokens_threshold', 'active_prefill_tokens_threshold_frac',
  'max_inflight', 'router_mode', 'load_ttl_ms', 'track_output_blocks', 'track_active_blocks', 'kv_block_size',
}
local in_force

local function applied()
  if not in_force then
    in_force = {}
    local v = redis.call('HMGET', K.applied, unpack(FIELDS))
    for i, name in ipairs(FIELDS) do in_force[name] = v[i] end
  end
  return in_force
end

--- A number in force, or its default.
local function setting(name, default)
  return tonumber(applied()[name]) or default
end
