--- @include "gate"
--- Why there is no worker for an admission: the first that holds.
function M.cause(a)
  if M.applied().router_mode == 'direct' then
    if a.pin == '' then return 'no_pin' end
    local g = M.gate(a.pin)
    if not g or not M.live(g) or a.exclude[a.pin] then return 'no_workers' end
    if M.has(g, 'b') then return 'all_workers_busy' end
    return M.has(g, 's') and 'worker_refused' or 'at_capacity'
  end
  local live, busy = S.live, S.live_busy
  for w in pairs(a.exclude) do
    local g = M.gate(w)
    if g and M.live(g) then
      live = live - 1
      if M.has(g, 'b') then busy = busy - 1 end
    end
  end
  if live <= 0 then return 'no_workers' end
  if busy > 0 then return 'all_workers_busy' end
  return redis.call('ZCARD', K.skips) > 0 and 'worker_refused' or 'at_capacity'
end

--- Counts refusals by cause, and in windows of 5 s for Retry-After.
function M.refused(causes)
  local k = 0
  for cause, n in pairs(causes) do
    M.bump(K.stats, 'refused:' .. cause, n)
    k = k + n
  end
  if k == 0 then return end
  M.more_stats()
  local since = S.shed_ms and now - S.shed_ms
  if not since or since < 0 or since >= 10000 then
    S.shed_ms, S.shed_now, S.shed_before = now, 0, 0
  elseif since >= 5000 then
    S.shed_ms, S.shed_now, S.shed_before = S.shed_ms + 5000, 0, S.shed_now
  end
  S.shed_now = (S.shed_now or 0) + k
end

--- Refusals of about the last 5 s.
function M.refused_lately()
  if not S.shed_ms then return 0 end
  return math.floor((S.shed_before or 0) * math.max(0, 1 - (now - S.shed_ms) / 5000) + (S.shed_now or 0))
end
