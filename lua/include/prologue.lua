--- @include "stats"
--- @rarely "epoch"
--- @rarely "clamp"
--- Every script's first act. Redis was away, or its clock went back (a gap): nobody is judged by that time. For 4 s
--- nobody is reaped and nothing goes stale, and no stored time lies further ahead than it could.
--- Returns a reply if there was no usable P:stats: a new epoch was started.
M.GAP_MS = 2500

--- hears: the caller's call is a sign that the fleet is alive.
function M.prologue(hears, mem, seen, rnd)
  if not M.load_stats() then return M.new_epoch('no stats', mem, seen, rnd) end
  local heard = S.heard
  local gap = not heard or not S.grace_until or now - heard > M.GAP_MS or now < heard
  if gap then
    M.more_stats()
    M.clamp()
    if not heard then
      S.healing_until = math.min(S.healing_until or 0, now + M.HEAL_MS)
    else
      -- Healing begins anew if it was not over when anybody was last heard.
      S.healing_until = heard < (S.healing_until or 0) and now + M.HEAL_MS or 0
    end
    S.grace_until = now + M.GRACE_MS
    S.away_ms = math.max(0, now - (heard or now))
  end
  S.healing_until = S.healing_until or 0
  S.born = S.born or now
  if gap or hears then S.heard = now end
end

function M.grace()
  return now < S.grace_until
end

function M.healing_left()
  return math.max(0, S.healing_until - now)
end
