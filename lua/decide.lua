#!lua
--[[ Releases, skips and admissions of one frontend: a group. Atomic; each admission is judged after those before it.
An admission whose id has a lease already is answered by that lease; releasing an unknown id does nothing.
KEYS[1..17]  the model's keys (include/shard)      KEYS[18]  P:leases:<frontend>
ARGV[1..7]   the caller (include/fence)            ARGV[8]   seed of this call's random choices, 1 to 2^31-2
ARGV[9..11]  how many releases, skips, admissions follow:
             releases: id · skips: worker, incarnation · admissions: id, tokens, pin ('' = none), n, n excluded workers
returns      {'ok', revision, drain rate per 1000 s, refusals of the last 5 s, verdicts...}; a verdict is
             'admitted', revision, worker, incarnation, url · or its cause, revision
             (max_inflight, all_workers_busy, worker_refused, at_capacity, no_workers, no_pin)
             or {'gone'} {'stale', seq} {'epoch', healing ms} {'healing', ms left}
cost         O(log workers) for each admission; never reads all workers. ]]
--- @include "run"
--- @include "fence"
--- @include "lease"
--- @include "alive"
--- @include "skip"
--- @include "pick"
--- @include "refuse"
local releases, skips, admissions = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local at = 12
local function take()
  at = at + 1
  return ARGV[at - 1]
end

--- The group, as it stands in ARGV.
local function read_group()
  local g = { ended = {}, skipped = {}, asked = {}, ids = {} }
  for i = 1, releases do
    g.ended[i] = take()
    g.ids[i] = g.ended[i]
  end
  for i = 1, skips do g.skipped[i] = { take(), take() } end
  for i = 1, admissions do
    local a = { id = take(), tokens = tonumber(take()), pin = take(), excluded = tonumber(take()), exclude = {} }
    for _ = 1, a.excluded do a.exclude[take()] = true end
    g.asked[i] = a
    g.ids[releases + i] = a.id
  end
  return g
end

--- A worker that may take `a`. What P:eligible did not know yet (silence, a lost write) is put right on the way.
local function choose(a)
  while true do
    local w = pick(a)
    if not w then return nil end
    local g = gate(w)
    if g and g.closed == '' and (not g.cap or count(w) < g.cap) then
      if alive(w) then return w, g end
      expire(w)
    else
      place(w)
    end
  end
end

local function main()
  local refused = prologue(false, caller.mem, caller.seen, caller.rnd) or fence('call')
  if refused then return refused end
  if now < S.healing_until then return { 'healing', S.healing_until - now } end
  local held = leases(KEYS[18], member.n)
  random_state = tonumber(ARGV[8])
  end_due_skips()

  local group = read_group()
  warm(held, group.ids)
  local ended = 0
  for _, id in ipairs(group.ended) do
    if del(held, id) then ended = ended + 1 end
  end
  settle()
  if ended > 0 then drained(ended) end
  for _, s in ipairs(group.skipped) do skip(s[1], s[2]) end

  local verdicts, no, shut = {}, {}, nil
  local most = tonumber(applied().max_inflight)
  local function say(...)
    for _, v in ipairs({ ... }) do verdicts[#verdicts + 1] = v end
  end
  for _, a in ipairs(group.asked) do
    local w, inc = read_lease(held, a.id)
    local g = w and gate(w)
    if w then
      say('admitted', S.revision, w, inc, g and g.url or '')
    elseif most and S.inflight_total >= most then
      no.max_inflight = (no.max_inflight or 0) + 1
      say('max_inflight', S.revision)
    else
      -- Shut for the rest of the group once nobody is eligible; a pinned request is judged singly, and so is one
      -- that excludes workers.
      local single = a.excluded > 0 or applied().router_mode == 'direct'
      if single or not shut then w, g = choose(a) end
      if w then
        add(held, a.id, w, g.inc, a.tokens)
        touched[w] = nil
        local _, known, prefill = route(w)
        S.admitted = (S.admitted or 0) + 1
        save_route(w, S.admitted, known, prefill + blocks(a.tokens))
        place(w)
        say('admitted', S.revision, w, g.inc, g.url)
      else
        local why = not single and shut or cause(a)
        if not single then shut = why end
        no[why] = (no[why] or 0) + 1
        say(why, S.revision)
      end
    end
  end

  local total = 0
  for why, k in pairs(no) do
    redis.call('HINCRBY', K.stats, 'refused:' .. why, k)
    total = total + k
  end
  if total > 0 then shed(total) end
  flush(held)
  write_seq(caller.frontend, S.epoch, caller.seq, held.n)
  return { 'ok', S.revision, math.floor((S.drain_rate or 0) * 1000), shed_lately(), unpack(verdicts) }
end

return run(main, caller.mem, caller.seen, caller.rnd)
