#!lua flags=allow-oom
--[[ Starts a new epoch by an operator's hand: everybody says again what it holds. Ends keys that nobody owns.
KEYS[1..17]  the model's keys (include/shard)
KEYS[18..]   P:leases:<f> of frontends that are not known, then P:worker:<w> of workers that are not
ARGV[1]      random word     ARGV[2]  how many frontends     ARGV[3..]  frontends, then workers (at most 256 of each)
returns      {'epoch', healing ms}
cost         O(workers + frontends) ]]
--- @include "run"
local WORKER_MEMORY_MS = 3600000

local function main()
  M.load_stats()
  local reply = M.new_epoch('repair', true, 0, ARGV[1])
  local frontends = tonumber(ARGV[2])
  for i = 3, #ARGV do
    local key = KEYS[15 + i]
    if i - 2 > frontends then
      redis.call('PEXPIRE', key, WORKER_MEMORY_MS)
    elseif not redis.call('ZSCORE', K.frontends, ARGV[i]) then
      redis.call('UNLINK', key)
    end
  end
  return reply
end

return M.run(main, true, 0, ARGV[1])
