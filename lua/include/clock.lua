--- The time in milliseconds, from Redis: no process's own clock is ever used.
--- (The property test replaces this one include, so that its time is simulated.)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
