#!lua flags=allow-oom
--[[ A worker's load and sign of life. Writes it and recomputes the worker in one step; takes changed configuration into force.
KEYS[1..17]  the model's keys (include/shard)      KEYS[18]  P:worker:<id>
ARGV[1..5]   worker, incarnation, number (rises with each of the process's reports), room (1: ends a skip), random word
ARGV[6..]    the registration (include/registration)
returns      {'ok', busy (0/1), config_version, track_output_blocks (0/1)} · {'ignored'}: an older number ·
             {'register'}: not known (any more) · {'superseded'} {'vacant'} (register) · {'invalid', field, value} ]]
--- @include "run"
--- @include "alive"
--- @include "older"
--- @include "config"
--- @include "registration"
local w, inc, number, room, rnd = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1', ARGV[5]

local function main()
  local r, wrong = M.read_registration(6)
  if not r then return wrong end
  if M.prologue(true, true, 0, rnd) then return { 'register' } end
  local g = M.gate(w)
  if not g then return { 'register' } end
  local h = M.read_worker(KEYS[18])
  if not h.incarnation or M.older(g.inc, inc) then return { 'register' } end
  if g.inc ~= inc then return { M.alive(w) and 'superseded' or 'vacant' } end
  if number <= (M.whole(h.number) or 0) then return { 'ignored' } end
  M.notice()
  if room then
    redis.call('ZREM', K.skips, w)
    M.mark(w, 's', false)
  end
  local busy = M.apply(w, KEYS[18], h, r, number)
  local version = M.whole(redis.call('HGET', K.applied, 'config_version')) or 0
  return { 'ok', busy and 1 or 0, version, M.applied().track_output_blocks == 'true' and 1 or 0 }
end

return M.run(main, true, 0, rnd)
