--- Ends a script whose state contradicts itself; `run` turns that into a new epoch.
local BROKEN = {}

local function broken(why)
  BROKEN.why = why
  error(BROKEN)
end
