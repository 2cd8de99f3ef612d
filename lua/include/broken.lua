--- @include "shard"
--- Ends a script whose state contradicts itself; `run` turns that into a new epoch.
M.contradiction = {}

function M.broken(why)
  M.contradiction.why = why
  error(M.contradiction)
end
