#!lua
--[[ Makes a worker known, or brings it back. Of two processes with one id the larger incarnation wins.
KEYS[1..17]  the model's keys (include/shard)      KEYS[18]  P:worker:<id>
ARGV[1..6]   worker, the process's nonce, the incarnation it had ('' = none), known (1: this process has had an answer
             before), yields (1: it lost this id before and must not take it from a live one), number of the report
ARGV[7..]    the registration (include/registration)
returns      {'ok', incarnation} · {'superseded'}: a larger one is alive · {'vacant'}: a larger one was here and is silent
             · {'invalid', field, value} ]]
--- @include "run"
--- @include "alive"
--- @include "older"
--- @include "registration"
local w, nonce, had, known, yields, number =
  ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[5] == '1', tonumber(ARGV[6])

local function ms_of(inc)
  return inc and tonumber(string.match(inc, '^%d+')) or 0
end

local function main()
  local r, wrong = M.read_registration(7)
  if not r then return wrong end
  -- A new epoch, also one that this call has made, is no hindrance: this is how workers come back.
  M.prologue(true, known, 0, nonce)
  local g = M.gate(w)
  local remembered = redis.call('HGET', KEYS[18], 'incarnation')
  local inc = had
  if had == '' then
    if g and string.match(g.inc, '%-(.*)$') == nonce then
      inc = g.inc
    elseif g and yields and M.alive(w) then
      return { 'superseded' }
    else
      inc = M.int(math.max(now, ms_of(g and g.inc) + 1, ms_of(remembered) + 1)) .. '-' .. nonce
    end
  end
  if g and M.older(inc, g.inc) then return { M.alive(w) and 'superseded' or 'vacant' } end
  if remembered and M.older(inc, remembered) then return { 'vacant' } end

  local h = M.read_worker(KEYS[18])
  if not g or g.inc ~= inc then
    M.new_gate(w, inc, r.cap, r.url)
    if remembered ~= inc then
      redis.call('DEL', KEYS[18])
      h = {}
    end
  elseif number <= (M.whole(h.number) or 0) then
    -- A copy that comes late: it carries what is no longer so.
    return { 'ok', inc }
  end
  redis.call('ZREM', K.skips, w)
  M.mark(w, 's', false)
  M.apply(w, KEYS[18], h, r, number)
  return { 'ok', inc }
end

return M.run(main, known, 0, nonce)
