--- @include "broken"
--- @include "prologue"
--- @include "seq"
--- Whether a call made in a frontend's name may go on. In this order: member, stale, epoch, lost.
--- ARGV[1..7] of such a script: frontend, epoch it has adopted ('' = none), seq, acked (highest seq answered ok),
--- seen (highest revision), mem (1: it has adopted an epoch before), random word.
local caller = {
  frontend = ARGV[1], epoch = ARGV[2], seq = num(ARGV[3]), acked = num(ARGV[4]), seen = num(ARGV[5]), mem = ARGV[6] == '1',
  rnd = ARGV[7],
}
--- Set by the fence: P:seq's `epoch|seq|leases` of the caller.
local member = {}

--- Somebody who remembers another epoch came while this one is young: others may come too.
local function heal_for(c)
  if c.mem and c.epoch ~= S.epoch and now < S.born + HEAL_MS then
    S.healing_until = math.max(S.healing_until, S.born + HEAL_MS)
  end
end

--- kind: 'hello', 'reconcile' (`first`: its first part) or 'call'. Returns a reply if the call must not go on.
local function fence(kind, first)
  local c = caller
  local alive = num(redis.call('ZSCORE', K.frontends, c.frontend))
  local epoch, stored, n = read_seq(c.frontend)
  if alive == 0 or (not alive and not epoch and kind ~= 'hello') then return { 'gone' } end
  if (alive == nil) ~= (epoch == nil) then broken('registry of ' .. c.frontend) end
  if stored and c.seq <= stored then return { 'stale', stored } end
  member.epoch, member.n = epoch, n or 0
  if kind == 'hello' then return nil end
  if c.epoch ~= S.epoch then
    if kind == 'reconcile' then return nil end
    heal_for(c)
    return { 'epoch', healing_left() }
  end
  if stored < c.acked or (epoch ~= S.epoch and epoch ~= 'new') then
    -- Acknowledged writes were lost (a failover): this frontend asserts what it holds, nobody else is disturbed.
    if kind == 'reconcile' and first then return nil end
    S.revision = math.max(S.revision + 1, now * 1000, c.seen + 1)
    return { 'epoch', 0 }
  end
  if kind == 'call' and epoch ~= S.epoch then return { 'epoch', healing_left() } end
end
