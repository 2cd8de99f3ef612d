--- @include "shard"
--- A finite number, or nil for all that is none (missing, text, nan, inf).
function M.num(v)
  local x = tonumber(v)
  if x and x == x and x > -math.huge and x < math.huge then return x end
end

M.MOST = 9007199254740991

--- A whole number from 0 to 2^53-1, which is all that we write as numbers; nil for anything else.
function M.whole(v)
  local x = tonumber(v)
  if x and x >= 0 and x <= M.MOST and x % 1 == 0 then return x end
end

--- A whole number as text. Redis's own conversion rounds large ones on some versions.
function M.int(x)
  return string.format('%d', x)
end
