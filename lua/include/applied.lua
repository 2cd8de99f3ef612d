--- @include "shard"
--- The configuration in force, P:config:applied, as text by field name; false = unset. Read once.
M.FIELDS = {
  'active_decode_blocks_threshold', 'active_prefill_tokens_threshold', 'active_prefill_tokens_threshold_frac',
  'max_inflight', 'router_mode', 'load_ttl_ms', 'track_output_blocks', 'track_active_blocks', 'kv_block_size',
}

M.in_force = false

function M.applied()
  if not M.in_force then
    M.in_force = {}
    local v = redis.call('HMGET', K.applied, unpack(M.FIELDS))
    for i, name in ipairs(M.FIELDS) do M.in_force[name] = v[i] end
  end
  return M.in_force
end

--- A number in force, or its default.
function M.setting(name, default)
  return tonumber(M.applied()[name]) or default
end
