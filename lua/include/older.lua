--- Whether incarnation `a` is smaller than `b`: by the time of registration, then by the nonce's bytes.
function M.older(a, b)
  local a_ms, a_nonce = string.match(a, '^(%d+)%-(.*)$')
  local b_ms, b_nonce = string.match(b, '^(%d+)%-(.*)$')
  if not a_ms or not b_ms then return false end
  if tonumber(a_ms) ~= tonumber(b_ms) then return tonumber(a_ms) < tonumber(b_ms) end
  return a_nonce < b_nonce
end
