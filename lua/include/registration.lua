--- @include "check"
--- @include "alive"
--- @include "recompute"
--- What a sidecar says of its worker, whole, in every registration and report. From ARGV[from]: url, first rank, ranks,
--- N ('' = none), Q, KV block size, draining (0/1), engine down (0/1), worker TTL in ms, then (rank, figure, value)*.
M.SIGNALS = {
  active_decode_blocks = true, tracked_decode_blocks = true, active_prefill_tokens = true, tracked_prefill_tokens = true,
}
M.CAPACITIES = { kv_total_blocks = true, max_num_batched_tokens = true }
M.WORKER_MEMORY_MS = 3600000

--- Returns the registration, or nil and a reply naming the field and the value that are wrong.
function M.read_registration(from)
  local function whole(i, name, least, most)
    local text = ARGV[from + i]
    if not M.figure(text) or tonumber(text) < least or tonumber(text) > most then
      return nil, { 'invalid', name, string.sub(text, 1, 200) }
    end
    return tonumber(text)
  end
  local r, wrong = { url = ARGV[from], figures = {} }, nil
  if r.url == '' or #r.url > 2048 or string.find(r.url, '%c') then
    return nil, { 'invalid', 'url', string.sub(r.url, 1, 200) }
  end
  r.first, wrong = whole(1, 'data_parallel_start_rank', 0, 65535)
  if wrong then return nil, wrong end
  r.size, wrong = whole(2, 'data_parallel_size', 1, 1024)
  if wrong then return nil, wrong end
  if ARGV[from + 3] ~= '' then
    r.slots, wrong = whole(3, 'engine_request_limit', 1, 1000000000)
    if wrong then return nil, wrong end
  end
  r.queue, wrong = whole(4, 'request_queue_limit', 0, 1000000000)
  if wrong then return nil, wrong end
  r.block_size, wrong = whole(5, 'kv_block_size', 1, 1048576)
  if wrong then return nil, wrong end
  r.draining, r.engine_down = ARGV[from + 6] == '1', ARGV[from + 7] == '1'
  r.ttl, wrong = whole(8, 'worker_ttl_ms', 5000, 3600000)
  if wrong then return nil, wrong end
  for i = from + 9, #ARGV, 3 do
    local rank, kind, value = M.num(ARGV[i]), ARGV[i + 1], ARGV[i + 2]
    if not rank or rank < r.first or rank >= r.first + r.size then
      return nil, { 'invalid', 'dp_rank', string.sub(ARGV[i], 1, 200) }
    end
    if not M.SIGNALS[kind] and not M.CAPACITIES[kind] then return nil, { 'invalid', string.sub(kind, 1, 200), value } end
    if not M.figure(value) then return nil, { 'invalid', kind, string.sub(value, 1, 200) } end
    r.figures[#r.figures + 1] = { M.int(rank) .. '.' .. kind, value, M.SIGNALS[kind] }
  end
  if r.slots then r.cap = r.slots + r.queue end
  return r
end

--- Figures of ranks that are not declared (any more) go.
function M.drop_other_ranks(key, h, r)
  for field in pairs(h) do
    local rank = tonumber(string.match(field, '^(%d+)%.'))
    if rank and (rank < r.first or rank >= r.first + r.size) then
      redis.call('HDEL', key, field)
      h[field] = nil
    end
  end
end

--- Writes P:worker:<id> (`h`: the same as a table) and everything that follows from it.
function M.apply(w, key, h, r, number)
  M.drop_other_ranks(key, h, r)
  local put, said = {}, {}
  local function field(name, value)
    put[#put + 1] = name
    put[#put + 1] = value
    h[name] = value
  end
  field('url', r.url)
  field('incarnation', M.gate(w).inc)
  field('data_parallel_start_rank', M.int(r.first))
  field('data_parallel_size', M.int(r.size))
  field('request_queue_limit', M.int(r.queue))
  field('kv_block_size', M.int(r.block_size))
  field('draining', r.draining and '1' or '0')
  field('engine_down', r.engine_down and '1' or '0')
  field('worker_ttl_ms', M.int(r.ttl))
  field('number', M.int(number))
  if not h.registered_ms then field('registered_ms', M.int(now)) end
  if r.slots then
    field('engine_request_limit', M.int(r.slots))
  elseif h.engine_request_limit then
    redis.call('HDEL', key, 'engine_request_limit')
    h.engine_request_limit = nil
  end
  for _, f in ipairs(r.figures) do
    field(f[1], f[2])
    if f[3] then field(f[1] .. '_ms', M.int(now)) end
    if #said < 400 then
      said[#said + 1] = f[1]
      said[#said + 1] = f[2]
    end
  end
  -- Lua's stack takes some 8,000 values: a worker of 1,024 ranks has more.
  for i = 1, #put, 1000 do redis.call('HSET', key, unpack(put, i, math.min(i + 999, #put))) end
  redis.call('PEXPIRE', key, M.WORKER_MEMORY_MS)

  local g = M.gate(w)
  if g.cap ~= r.cap or g.url ~= r.url then
    g.cap, g.url = r.cap, r.url
    M.changed.gate[w] = true
    S.revision = S.revision + 1
    M.fleet_changed()
  end
  redis.call('ZADD', K.workers, M.int(now + r.ttl), w)
  M.mark(w, 'd', r.draining)
  M.mark(w, 'e', r.engine_down)
  M.mark(w, 'x', false)
  local busy = M.recompute(w, key, h)
  M.place(w)
  M.journal(K.load, 10000, 'worker', w, 'busy', busy and '1' or '0', unpack(said, 1, math.min(#said, 1000)))
  return busy
end
