--- @include "prologue"
--- @include "seq"
--- @rarely "broken"
--- @rarely "heal"
--- Whether a call made in a frontend's name may go on. In this order: member, stale, epoch, lost.
--- ARGV[1..7] of such a script: frontend, epoch it has adopted ('' = none), seq, acked (highest seq answered ok),
--- seen (highest revision), mem (1: it has adopted an epoch before), random word.
local caller = {
  frontend = ARGV[1], epoch = ARGV[2], seq = M.num(ARGV[3]), acked = M.num(ARGV[4]), seen = M.num(ARGV[5]),
  mem = ARGV[6] == '1', rnd = ARGV[7],
}
--- Set by the fence: P:seq's epoch and leases of the caller.
local member = {}

--- kind: 'hello', 'reconcile' (`first`: its first part) or 'call'. Returns a reply if the call must not go on.
function M.fence(kind, first)
  local c = caller
  local alive_until = M.num(redis.call('ZSCORE', K.frontends, c.frontend))
  local epoch, seq, n = M.read_seq(c.frontend)
  if alive_until == 0 or (not alive_until and not epoch and kind ~= 'hello') then return { 'gone' } end
  if (alive_until == nil) ~= (epoch == nil) then M.broken('registry of ' .. c.frontend) end
  if seq and c.seq <= seq then return { 'stale', seq } end
  member.epoch, member.n = epoch, n or 0
  if kind == 'hello' then return nil end
  if c.epoch ~= S.epoch then
    if kind == 'reconcile' then return nil end
    M.heal_for(c)
    return { 'epoch', M.healing_left() }
  end
  if seq < c.acked or (epoch ~= S.epoch and epoch ~= 'new') then
    -- Acknowledged writes were lost (a failover): this frontend asserts what it holds, nobody else is disturbed.
    if kind == 'reconcile' and first then return nil end
    S.revision = math.max(S.revision + 1, now * 1000, c.seen + 1)
    return { 'epoch', M.healing_left() }
  end
  if kind == 'call' and epoch ~= S.epoch then return { 'epoch', M.healing_left() } end
end
