--- @include "applied"
--- @include "prologue"
--- Whether a worker is busy, from its own hash `h` (P:worker:<id> as a table) and the values in force.
--- A rank is busy if any configured check is true, a worker if all its declared ranks are.

local function read_worker(key)
  local h, v = {}, redis.call('HGETALL', key)
  for i = 1, #v, 2 do h[v[i]] = v[i + 1] end
  return h
end

--- A signal that still counts, and when it ends. Time in which Redis was away does not age it.
local function fresh(h, field)
  local value, ms = num(h[field]), num(h[field .. '_ms'])
  if not value or not ms then return nil end
  local ends = math.min(ms, now) + setting('load_ttl_ms', 5000) + (grace() and S.away_ms or 0)
  if now < ends then return value, ends end
end

--- The larger of what the engine says and what the sidecar counts; `ends`: the earliest end of the two.
local function larger(h, rank, what)
  local a, a_ends = fresh(h, rank .. '.active_' .. what)
  local t, t_ends = fresh(h, rank .. '.tracked_' .. what)
  local ends = math.min(a_ends or math.huge, t_ends or math.huge)
  if t and (not a or t > a) then return t, 'tracked_' .. what, ends end
  return a, 'active_' .. what, ends
end

--- Returns busy, busy_reason, when that may change by itself (nil: not), KV blocks and prefill tokens of all ranks.
local function judge(h)
  local v = applied()
  local share, most, fraction =
    v.active_decode_blocks_threshold, v.active_prefill_tokens_threshold, v.active_prefill_tokens_threshold_frac
  local first, size = num(h.data_parallel_start_rank) or 0, num(h.data_parallel_size) or 1
  local reasons, due, blocks, tokens = {}, math.huge, 0, 0
  for rank = first, first + size - 1 do
    local r = int(rank)
    local decode, decode_source, decode_ends = larger(h, r, 'decode_blocks')
    local prefill, prefill_source, prefill_ends = larger(h, r, 'prefill_tokens')
    local total, step = num(h[r .. '.kv_total_blocks']), num(h[r .. '.max_num_batched_tokens'])
    local why
    -- Divided, not multiplied: 57 of 100 is not above 0.57.
    if share and decode and total and total > 0 and decode / total > tonumber(share) then
      why = 'decode ' .. int(decode) .. '/' .. int(total) .. '>' .. share .. ' ' .. decode_source
    elseif most and prefill and prefill > tonumber(most) then
      why = 'prefill ' .. int(prefill) .. '>' .. most .. ' ' .. prefill_source
    elseif fraction and prefill and step and step > 0 and prefill > tonumber(fraction) * step then
      why = 'prefill ' .. int(prefill) .. '>' .. fraction .. '*' .. int(step) .. ' ' .. prefill_source
    end
    if why then reasons[#reasons + 1] = r .. ':' .. why end
    blocks, tokens = blocks + (decode or 0), tokens + (prefill or 0)
    due = math.min(due, decode_ends, prefill_ends)
  end
  if #reasons == 0 or due == math.huge then due = nil end
  return #reasons == size, table.concat(reasons, '; '), due, blocks, tokens
end
