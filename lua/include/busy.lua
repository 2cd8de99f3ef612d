--- @include "applied"
--- @include "prologue"
--- Whether a worker is busy, from its own hash `h` (P:worker:<id> as a table) and the values in force.
--- A rank is busy if any configured check is true, a worker if all its declared ranks are.

function M.read_worker(key)
  local h, v = {}, redis.call('HGETALL', key)
  for i = 1, #v, 2 do h[v[i]] = v[i + 1] end
  return h
end

--- A signal that still counts, and when it ends. While an absence of Redis is made up for, that time does not age it.
function M.fresh(h, field)
  local value, ms = M.whole(h[field]), M.whole(h[field .. '_ms'])
  if not value or not ms then return nil end
  local ends = math.min(ms, now) + M.setting('load_ttl_ms', 5000)
  if M.grace() then
    M.more_stats()
    ends = math.max(ends, math.min(ends + S.away_ms, S.grace_until))
  end
  if now < ends then return value, ends end
end

--- The larger of what the engine says and what the sidecar counts; `ends`: the earliest end of the two.
function M.larger(h, rank, what)
  local a, a_ends = M.fresh(h, rank .. '.active_' .. what)
  local t, t_ends = M.fresh(h, rank .. '.tracked_' .. what)
  local ends = math.min(a_ends or math.huge, t_ends or math.huge)
  if t and (not a or t > a) then return t, 'tracked_' .. what, ends end
  return a, 'active_' .. what, ends
end

--- Returns busy, busy_reason, when that may change by itself (nil: not), KV blocks and prefill tokens of all ranks.
function M.judge(h)
  local v = M.applied()
  local share, most, fraction =
    v.active_decode_blocks_threshold, v.active_prefill_tokens_threshold, v.active_prefill_tokens_threshold_frac
  local share_n, most_n, fraction_n = tonumber(share), tonumber(most), tonumber(fraction)
  local first, size = M.whole(h.data_parallel_start_rank), M.whole(h.data_parallel_size)
  if not first or first > 65535 then first = 0 end
  if not size or size < 1 or size > 1024 then size = 1 end
  local reasons, due, used, tokens = {}, math.huge, 0, 0
  for rank = first, first + size - 1 do
    local r = M.int(rank)
    local decode, decode_source, decode_ends = M.larger(h, r, 'decode_blocks')
    local prefill, prefill_source, prefill_ends = M.larger(h, r, 'prefill_tokens')
    local total, batch = M.whole(h[r .. '.kv_total_blocks']), M.whole(h[r .. '.max_num_batched_tokens'])
    local why
    -- Divided, not multiplied: 57 of 100 is not above 0.57.
    if share_n and decode and total and total > 0 and decode / total > share_n then
      why = 'decode ' .. M.int(decode) .. '/' .. M.int(total) .. '>' .. share .. ' ' .. decode_source
    elseif most_n and prefill and prefill > most_n then
      why = 'prefill ' .. M.int(prefill) .. '>' .. most .. ' ' .. prefill_source
    elseif fraction_n and prefill and batch and batch > 0 and prefill > fraction_n * batch then
      why = 'prefill ' .. M.int(prefill) .. '>' .. fraction .. '*' .. M.int(batch) .. ' ' .. prefill_source
    end
    if why then reasons[#reasons + 1] = r .. ':' .. why end
    used, tokens = used + (decode or 0), tokens + (prefill or 0)
    due = math.min(due, decode_ends, prefill_ends)
  end
  if #reasons == 0 or due == math.huge then due = nil end
  return #reasons == size, table.concat(reasons, '; '), due, used, math.min(tokens, 9007199254740991)
end
