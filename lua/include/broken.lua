--- @include "shard"
--- Ends a script whose state contradicts itself; `run` turns that into a new epoch.
M.BROKEN = {}

function M.broken(why)
  M.BROKEN.why = why
  error(M.BROKEN)
end
