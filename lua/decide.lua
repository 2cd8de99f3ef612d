#!lua
--[[ Releases, skips and admissions of one frontend: a group. Atomic; each admission is judged after those before it.
An admission whose id has a lease already is answered by that lease; releasing an unknown id does nothing.
KEYS[1..17]  the model's keys (include/shard)      KEYS[18]  P:leases:<frontend>
ARGV[1..7]   the caller (include/fence)            ARGV[8]   seed of this call's random choices, 1 to 2^31-2
ARGV[9..11]  how many releases, skips, admissions follow:
             releases: id · skips: worker, incarnation · admissions: id, tokens; or where there is more to say
             id, tokens followed by '*', pin ('' = none), n, n excluded workers
returns      {'ok', revision, drain rate per 1000 s, refusals of the last 5 s, verdicts...}; a verdict is
             'admitted', revision, worker, incarnation, url · or its cause, revision
             (max_inflight, all_workers_busy, worker_refused, at_capacity, no_workers, no_pin)
             or {'gone'} {'stale', seq} {'epoch', healing ms} {'healing', ms left}
cost         O(log workers) for each admission; never reads all workers. ]]
--- @include "run"
--- @include "fence"
--- @include "lease"
--- @include "expired"
--- @include "skips"
--- @include "pick"
--- @include "refuse"
local at = 12
local function take()
  at = at + 1
  return ARGV[at - 1]
end

local NONE = {}

--- The group, as it stands in ARGV. `ids`: those of releases, then of admissions; `tokens`: of each admission;
--- `special`: what more some of them say; `most`: how many workers the group can use up or pass over.
local function read_group()
  local releases, skips, admissions = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
  local group = { ended = {}, skipped = {}, ids = {}, tokens = {}, special = {}, most = admissions, first = releases }
  local excluded = {}
  for i = 1, releases do
    group.ended[i] = take()
    group.ids[i] = group.ended[i]
  end
  for i = 1, skips do group.skipped[i] = { take(), take() } end
  for i = 1, admissions do
    group.ids[releases + i] = take()
    local text = take()
    local tokens = tonumber(text)
    if not tokens then
      tokens = tonumber(string.sub(text, 1, -2))
      local a = { pin = take(), excluded = tonumber(take()), exclude = {} }
      for _ = 1, a.excluded do
        local w = take()
        a.exclude[w] = true
        if not excluded[w] then
          excluded[w] = true
          group.most = group.most + 1
        end
      end
      group.special[i] = a
    end
    group.tokens[i] = tokens
  end
  return group
end

--- A worker that may take `a`. An entry of P:eligible that should not be there (written by hand) goes on the way.
local function choose(a, most)
  while true do
    local w = M.pick(a, most)
    if not w then return nil end
    local g = M.gate(w)
    if g and g.closed == '' and (not g.cap or g.n < g.cap) then
      return w, g
    end
    M.place(w)
  end
end

--- Makes the lease, and remembers the choice.
local function admit(held, id, tokens, w, g)
  M.add(held, id, w, g.inc, tokens)
  M.touched[w] = nil
  g.chosen, g.prefill = S.revision, g.prefill + M.blocks(tokens)
  M.changed.route[w] = true
  M.place(w)
end

local function main()
  local refused = M.prologue(false, caller.mem, caller.seen, caller.rnd) or M.fence('call')
  if refused then return refused end
  if now < S.healing_until then return { 'healing', S.healing_until - now } end
  local group, held = read_group(), M.leases(KEYS[18], member.n)
  M.random_state = tonumber(ARGV[8])
  M.warm(held, group.ids)
  M.end_due_skips()
  M.released(M.del_all(held, group.ended))
  M.settle()
  if #group.tokens > 0 then M.expire_due() end
  for _, s in ipairs(group.skipped) do M.skip(s[1], s[2]) end

  local reply, causes, shut, admitted = { 'ok', 0, 0, 0 }, {}, nil, 0
  local most = tonumber(M.applied().max_inflight)
  local direct = M.applied().router_mode == 'direct'
  local plain = { pin = '', exclude = NONE, excluded = 0 }
  local function say(verdict, w, inc, url)
    local n = #reply
    reply[n + 1], reply[n + 2] = verdict, S.revision
    if w then reply[n + 3], reply[n + 4], reply[n + 5] = w, inc, url end
  end
  for i, tokens in ipairs(group.tokens) do
    local id = group.ids[group.first + i]
    local known, inc = M.read_lease(held, id)
    local a = group.special[i] or plain
    -- Shut for the rest of the group once nobody is eligible or the total is reached; pinned requests, and those that
    -- exclude workers, are judged singly.
    local single = direct or a.excluded > 0
    local cause, w, g
    if known then
      local now_at = M.gate(known)
      say('admitted', known, inc, now_at and now_at.url or '')
    elseif most and S.inflight_total >= most then
      cause = 'max_inflight'
    elseif shut and not single then
      cause = shut
    else
      w, g = choose(a, group.most)
      cause = not w and M.cause(a)
      if cause and not single then shut = cause end
    end
    if w then
      admitted = admitted + 1
      admit(held, id, tokens, w, g)
      say('admitted', w, g.inc, g.url)
    elseif cause then
      causes[cause] = (causes[cause] or 0) + 1
      say(cause)
    end
  end

  if admitted > 0 then M.bump(K.stats, 'admitted', admitted) end
  M.refused(causes)
  M.flush(held)
  M.write_seq(caller.frontend, S.epoch, caller.seq, held.n)
  M.more_stats()
  reply[2], reply[3], reply[4] = S.revision, math.floor(S.drain_rate * 1000), M.refused_lately()
  return reply
end

return M.run(main, caller.mem, caller.seen, caller.rnd)
