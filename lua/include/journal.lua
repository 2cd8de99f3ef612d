--- @include "num"
--- Appends to a stream of about `bound` entries. A journal never stands in a decision's way: nobody depends on it,
--- so one that is broken (another type, ids used up) is dropped.
local function journal(key, bound, ...)
  local r = redis.pcall('XADD', key, 'MAXLEN', '~', bound, '*', ...)
  if type(r) == 'table' and r.err then redis.call('DEL', key) end
end

--- One line of what happened: joined, left, busy, free, skipped, config, refused, epoch, healed, reaped.
local function transition(kind, who, why)
  journal(K.transitions, 10000, 'kind', kind, 'who', who, 'why', why or '', 'revision', int(S.revision))
end
