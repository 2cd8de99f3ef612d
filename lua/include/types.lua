--- @include "shard"
--- Drops what is not of its type (somebody wrote over it). P:config is the operator's: it is never touched.
function M.drop_wrong_types()
  local types = {
    applied = 'hash', history = 'stream', workers = 'zset', gate = 'hash', busy = 'set', eligible = 'zset',
    inflight = 'hash', reserved = 'hash', route = 'hash', skips = 'zset', due = 'zset', frontends = 'zset', seq = 'hash',
    load = 'stream', transitions = 'stream', stats = 'hash',
  }
  local function drop(key, want)
    local is = redis.call('TYPE', key).ok
    if is ~= 'none' and is ~= want then redis.call('DEL', key) end
  end
  for name, want in pairs(types) do drop(K[name], want) end
  -- Lease and worker hashes.
  for i = 18, #KEYS do drop(KEYS[i], 'hash') end
end
