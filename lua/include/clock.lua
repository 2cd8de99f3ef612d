--- The time in milliseconds, from Redis: no process's own clock is ever used.
--- (The property test replaces this one include, so that its time is simulated.)
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
local now = clock()
