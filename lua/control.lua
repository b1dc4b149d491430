-- Versions of the rules, lists and switches: what operators change, and what instances tell of themselves.
--   KEYS[1]   the head, a hash. Of versions: `current` (a number), its `token`, `meta`, `size` and `trail`; `confirmed`,
--             when an instance last told that it enforces that one; `oldest`, the first number that is kept, and
--             `bytes`, of the files of all. Of lists and switches: `generation`, which counts their changes,
--             `runtime_token` of the last one, `runtime_trail` and `runtime_confirmed`
--   KEYS[2]   the audit log, a stream whose entries have a `token` and an `entry`
--   KEYS[3]   the entries of lists, KEYS[4] the switches: hashes, each value is when it ends, in milliseconds since
--             1970 or 0 for never, a line feed, and the rest
--   KEYS[5]   what instances tell, a hash by their ids; KEYS[6] when they last did, by the server's clock in
--             milliseconds since 1970
--   KEYS[7…]  versions, as the operation says: hashes with `meta`, `token`, `trail`, `files` and `size`, the bytes of these
--   ARGV[1]   the operation; what follows is said there
--   ARGV[2]   the channel in which changes are told
--   ARGV[3]   'first', or 'again' where the operation may have run before
-- A token tells one change from all others: one that was made before is not made again, and answered as it was then.
-- A trail has the tokens of the changes before, newest first. What was lost is put back only over what it descends from,
-- or over nothing: else somebody went on from what was left, and that stands.

local head, audit, entries, switches, instances, seen = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]

-- How many changes are kept, how long an instance counts that does not tell, in milliseconds, and how many characters of
-- a trail are kept: 100 tokens.
local MOST_AUDITED, PRESENCE, LONGEST_TRAIL = 10000, 30000, 3300

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Whether a change was made before. Only one that is asked for again can have been, within the last seconds.
local function was_made(token)
  if ARGV[3] == 'first' then
    return false
  end
  for _, item in ipairs(redis.call('XREVRANGE', audit, '+', '-', 'COUNT', 2000)) do
    if item[2][2] == token then
      return true
    end
  end
  return false
end

local function note(token, entry)
  redis.call('XADD', audit, 'MAXLEN', '=', MOST_AUDITED, '*', 'token', token, 'entry', entry)
end

local function tell(token, entry)
  note(token, entry)
  -- Who may not publish is heard by the poll.
  redis.pcall('PUBLISH', ARGV[2], token)
end

-- The trail of what is made after `token`, which had this `trail`; both may be missing.
local function trail_after(token, trail)
  return token and string.sub(token .. ' ' .. (trail or ''), 1, LONGEST_TRAIL) or ''
end

-- Whether what has this trail comes after `token`, or there is nothing that it could come after.
local function descends(trail, token)
  return not token or string.find(trail, token, 1, true) ~= nil
end

-- Whether what is current was enforced lately, by some instance.
local function is_confirmed(field)
  local confirmed = tonumber(redis.call('HGET', head, field) or '0')
  return now_ms() - confirmed < PRESENCE
end

-- Removes what has ended.
local function sweep(key, now)
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    local ends = tonumber(string.match(all[i + 1], '^%d+')) or 0
    if ends > 0 and ends <= now then
      redis.call('HDEL', key, all[i])
    end
  end
end

-- Makes KEYS[7] and makes it current. Not to be called where its bytes count already, but with `is_counted`.
local function make_current(number, token, meta, trail, files, is_counted)
  local size = string.len(files)
  redis.call('DEL', KEYS[7])
  redis.call('HSET', KEYS[7], 'meta', meta, 'token', token, 'trail', trail, 'files', files, 'size', size)
  redis.call('HSET', head, 'current', number, 'token', token, 'meta', meta, 'trail', trail, 'size', size)
  redis.call('HDEL', head, 'confirmed')
  if not is_counted then
    redis.call('HINCRBY', head, 'bytes', size)
  end
end

-- The first number that is kept, and the bytes of all.
local function kept()
  local state = redis.call('HMGET', head, 'oldest', 'bytes')
  return { state[1] or '1', state[2] or '0' }
end

local OPERATIONS = {
  -- An instance tells of itself. ARGV: its id, what it tells, the number and the token of the version that it enforces,
  -- which is KEYS[7], or '' for none, and the token of its lists and switches. Replies what is current: its number and token, or nothing; whether it is
  -- there, or nothing where it is not KEYS[7]; the generation and its token; and the size of what is current.
  beat = function()
    local now = now_ms()
    redis.call('HSET', instances, ARGV[4], ARGV[5])
    redis.call('HSET', seen, ARGV[4], now)
    -- One of several does for all.
    local all = now % 8 == 0 and redis.call('HGETALL', seen) or {}
    for i = 1, #all, 2 do
      if tonumber(all[i + 1]) < now - PRESENCE then
        redis.call('HDEL', instances, all[i])
        redis.call('HDEL', seen, all[i])
      end
    end
    redis.call('PEXPIRE', instances, 2 * PRESENCE)
    redis.call('PEXPIRE', seen, 2 * PRESENCE)
    local state = redis.call('HMGET', head, 'current', 'token', 'generation', 'runtime_token', 'size')
    local is_whole = false
    if state[1] and state[1] == ARGV[6] and state[2] == ARGV[7] then
      redis.call('HSET', head, 'confirmed', now)
      is_whole = redis.call('HEXISTS', KEYS[7], 'files')
    end
    if state[4] and state[4] == ARGV[8] then
      redis.call('HSET', head, 'runtime_confirmed', now)
    end
    return { state[1], state[2], is_whole, state[3] or '0', state[4] or '', state[5] or '0' }
  end,

  -- Replies the number of the current version, if there is one.
  current = function()
    return redis.call('HGET', head, 'current')
  end,

  -- Replies the `meta` of each of KEYS[7…].
  versions = function()
    local metas = {}
    for i = 7, #KEYS do
      metas[i - 6] = redis.call('HGET', KEYS[i], 'meta')
    end
    return metas
  end,

  -- Makes KEYS[7] and makes it current. ARGV: the token, the number of the version that has to be current or '' for
  -- none, its own number, `meta`, `files`, and the entry for the audit log.
  -- Replies 'made' and what is kept, or what else is the case, with the current version's `meta` for 'stale'.
  apply = function()
    local token, based_on = ARGV[4], ARGV[5]
    if redis.call('HGET', KEYS[7], 'token') ~= token then
      local state = redis.call('HMGET', head, 'current', 'meta', 'token', 'trail')
      if (state[1] or '') ~= based_on then
        return { state[1] and 'stale' or 'lost', state[2] }
      end
      make_current(ARGV[6], token, ARGV[7], trail_after(state[3], state[4]), ARGV[8])
      tell(token, ARGV[9])
    end
    local state = kept()
    return { 'made', state[1], state[2] }
  end,

  -- Drops KEYS[7…], the oldest first, until the others fit. ARGV: the number of the first of them, the first number that
  -- may be kept, and how many bytes. Replies what is kept then.
  trim = function()
    local current = tonumber(redis.call('HGET', head, 'current') or '0')
    local oldest, bytes = unpack(kept())
    if oldest ~= ARGV[4] then
      return { oldest, bytes }
    end
    oldest, bytes = tonumber(oldest), tonumber(bytes)
    for i = 7, #KEYS do
      if oldest >= current or oldest >= tonumber(ARGV[5]) and bytes <= tonumber(ARGV[6]) then
        break
      end
      bytes = math.max(0, bytes - tonumber(redis.call('HGET', KEYS[i], 'size') or '0'))
      redis.call('DEL', KEYS[i])
      oldest = oldest + 1
    end
    redis.call('HSET', head, 'oldest', oldest, 'bytes', bytes)
    return { tostring(oldest), tostring(bytes) }
  end,

  -- Makes KEYS[7] current again, which got lost. ARGV: the token, the number, `meta`, `trail`, `files`, the entry for the
  -- audit log, the first number that may be kept, and 'steady', or 'cut off' from an instance that was for a while.
  -- Replies 'made'; 'kept' where nothing is lost; or 'other' where what is current stands: it is later, or made from what
  -- was left, or it was taken up while the instance was cut off.
  put_back = function()
    local token, number = ARGV[4], tonumber(ARGV[5])
    local state = redis.call('HMGET', head, 'current', 'token')
    local current = tonumber(state[1] or '0')
    local is_this = current == number and state[2] == token
    if is_this then
      if redis.call('HGET', KEYS[7], 'token') == token and redis.call('HEXISTS', KEYS[7], 'files') == 1 then
        return 'kept'
      end
    elseif current >= number or not descends(ARGV[7], state[2]) then
      return 'other'
    elseif ARGV[11] == 'cut off' and state[1] and is_confirmed('confirmed') then
      return 'other'
    end
    make_current(ARGV[5], token, ARGV[6], ARGV[7], ARGV[8], is_this)
    if not redis.call('HGET', head, 'oldest') then
      redis.call('HSET', head, 'oldest', ARGV[10])
    end
    tell(token, ARGV[9])
    return 'made'
  end,

  -- Replies the generation, its token and trail, all entries and all switches.
  runtime = function()
    local state = redis.call('HMGET', head, 'generation', 'runtime_token', 'runtime_trail')
    local all = { redis.call('HVALS', entries), redis.call('HVALS', switches) }
    return { state[1] or '0', state[2] or '', state[3] or '', all[1], all[2] }
  end,

  -- Makes a change of lists or switches. ARGV: the token, the entry for the audit log, 'put', 'remove' or 'note', then
  -- which of KEYS is changed, the field, its value, how many there may be, and 'some' from an instance that knows of
  -- earlier changes, or 'none'.
  -- Replies 'made', 'none' where nothing was there to remove, 'full', or 'lost' where the earlier changes are.
  change = function()
    local token, what, key, field = ARGV[4], ARGV[6], KEYS[tonumber(ARGV[7])], ARGV[8]
    if was_made(token) then
      return 'made'
    end
    if what == 'note' then
      note(token, ARGV[5])
      return 'made'
    end
    local state = redis.call('HMGET', head, 'runtime_token', 'runtime_trail')
    if not state[1] and ARGV[11] == 'some' then
      return 'lost'
    end
    local now = now_ms()
    sweep(entries, now)
    sweep(switches, now)
    if what == 'put' then
      if redis.call('HEXISTS', key, field) == 0 and redis.call('HLEN', key) >= tonumber(ARGV[10]) then
        return 'full'
      end
      redis.call('HSET', key, field, ARGV[9])
    elseif redis.call('HDEL', key, field) == 0 then
      return 'none'
    end
    redis.call('HINCRBY', head, 'generation', 1)
    redis.call('HDEL', head, 'runtime_confirmed')
    redis.call('HSET', head, 'runtime_token', token, 'runtime_trail', trail_after(state[1], state[2]))
    tell(token, ARGV[5])
    return 'made'
  end,

  -- Has lists and switches be what they were, which got lost. ARGV: the token, the generation, the trail, the entry for
  -- the audit log, 'steady' or 'cut off' as above, and for each which of KEYS has it, the field and its value.
  -- Replies 'made', or 'other' where what is there stands, as above.
  put_runtime_back = function()
    local state = redis.call('HMGET', head, 'generation', 'runtime_token')
    if tonumber(state[1] or '0') >= tonumber(ARGV[5]) or not descends(ARGV[6], state[2]) then
      return 'other'
    end
    if ARGV[8] == 'cut off' and state[2] and is_confirmed('runtime_confirmed') then
      return 'other'
    end
    redis.call('DEL', entries, switches)
    for i = 9, #ARGV, 3 do
      redis.call('HSET', KEYS[tonumber(ARGV[i])], ARGV[i + 1], ARGV[i + 2])
    end
    redis.call('HSET', head, 'generation', ARGV[5], 'runtime_token', ARGV[4], 'runtime_trail', ARGV[6])
    tell(ARGV[4], ARGV[7])
    return 'made'
  end,

  -- Replies what was done, newest first. ARGV: where to begin, as XREVRANGE has it, and how many.
  audit = function()
    local items = redis.call('XREVRANGE', audit, ARGV[4], '-', 'COUNT', ARGV[5])
    for i, item in ipairs(items) do
      items[i] = { item[1], item[2][4] }
    end
    return items
  end,

  -- Replies for each instance when it last told, and what.
  instances = function()
    local now, present = now_ms(), {}
    local all = redis.call('HGETALL', seen)
    for i = 1, #all, 2 do
      local told = redis.call('HGET', instances, all[i])
      if told and tonumber(all[i + 1]) >= now - PRESENCE then
        present[#present + 1] = { all[i + 1], told }
      end
    end
    return present
  end,
}

return OPERATIONS[ARGV[1]]()
