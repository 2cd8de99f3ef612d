--- @include "num"
--- Appends to a stream of about `bound` entries. A journal never stands in a decision's way: nobody depends on it,
--- so one that is broken (another type, ids used up) is dropped.
function M.journal(key, bound, ...)
  local r = redis.pcall('XADD', key, 'MAXLEN', '~', bound, '*', ...)
  if type(r) == 'table' and r.err then redis.call('DEL', key) end
end

--- One line of what happened: joined, left, busy, free, skipped, config, refused, epoch, healed, reaped.
function M.transition(kind, who, why)
  M.journal(K.transitions, 10000, 'kind', kind, 'who', who, 'why', why or '', 'revision', M.int(S.revision))
end
