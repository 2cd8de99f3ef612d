--- @include "epoch"
--- Somebody who remembers another epoch came while this one is young: others may come too.
function M.heal_for(c)
  M.more_stats()
  if c.mem and c.epoch ~= S.epoch and now < S.born + M.HEAL_MS then
    S.healing_until = math.max(S.healing_until, S.born + M.HEAL_MS)
  end
end
