--- @include "num"
--- Whether `text` is a legal value of a configuration field. Plain decimal notation; an exponent for fractions only.
M.MAX_WHOLE = 9007199254740991
M.KINDS = {
  active_decode_blocks_threshold = { 'fraction', 0, 1 },
  active_prefill_tokens_threshold = { 'whole', 0, M.MAX_WHOLE },
  active_prefill_tokens_threshold_frac = { 'fraction', 0, math.huge },
  max_inflight = { 'whole', 0, M.MAX_WHOLE },
  load_ttl_ms = { 'whole', 100, 3600000 },
  kv_block_size = { 'whole', 1, 1048576 },
  track_output_blocks = { 'word', ['true'] = true, ['false'] = true },
  track_active_blocks = { 'word', ['true'] = true, ['false'] = true },
  router_mode = {
    'word', ['round-robin'] = true, ['random'] = true, ['power-of-two'] = true, ['least-loaded'] = true,
    ['kv'] = true, ['direct'] = true,
  },
}

function M.legal(field, text)
  local kind = M.KINDS[field]
  if not kind then return false end
  if kind[1] == 'word' then return kind[text] == true end
  if #text > 64 then return false end
  local digits = text
  if kind[1] == 'fraction' then digits = string.match(text, '^([%d%.]+)[eE][+-]?%d+$') or text end
  if kind[1] == 'whole' and not string.find(text, '^%d+$') then return false end
  if not string.find(digits, '^%d+%.?%d*$') and not string.find(digits, '^%.%d+$') then return false end
  local x = M.num(text)
  return x ~= nil and x >= kind[2] and x <= kind[3]
end

--- Whether `text` is a figure: a whole number in [0, 2^53-1].
function M.figure(text)
  return string.find(text, '^%d+$') ~= nil and tonumber(text) <= M.MAX_WHOLE
end
