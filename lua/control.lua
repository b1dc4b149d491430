-- Control-plane state shared by all instances: rule versions, lists, switches, the audit log and heartbeats.
--   KEYS[1]   the head, a hash. Of versions: `current` (a number), its `token`, `meta`, `size` and `trail`; `confirmed`,
--             when an instance last reported that it enforces that version; `oldest`, the lowest retained number, and
--             `bytes`, the total size of the files of all versions. Of lists and switches: `generation`, the number of
--             their changes, `runtime_token` of the last one, `runtime_trail` and `runtime_confirmed`
--   KEYS[2]   the audit log, a stream whose entries have a `token` and an `entry`
--   KEYS[3]   the entries of lists, KEYS[4] the switches: hashes; each value is its expiry in milliseconds since 1970
--             (0 for never), a line feed, and the payload
--   KEYS[5]   the heartbeat records of instances, a hash by instance id; KEYS[6] the time of the last heartbeat of each,
--             by the server's clock in milliseconds since 1970
--   KEYS[7…]  versions, depending on the operation: hashes with `meta`, `token`, `trail`, `files` and `size`, the bytes of
--             the files. In operations on bans, KEYS[7] is the list of active bans, a sorted set of ids by their ends in
--             milliseconds since 1970; KEYS[8] their records, a hash by id; and KEYS[9] the watched ones of the list. In
--             `region_tables`, KEYS[7] is a record of the region, a string: of its tables, or of the primary region
--   ARGV[1]   the operation; each operation documents the arguments after ARGV[3]
--   ARGV[2]   the channel on which changes are published
--   ARGV[3]   'first', or 'again' if an earlier attempt may have run
-- A token identifies one change: a change that was applied before is not applied again, and its result is repeated.
-- A trail lists the tokens of the preceding changes, newest first. Lost state is restored only over a state that it
-- descends from, or over nothing: otherwise an operator has continued from the remaining state, which then stands.

local head, audit, entries, switches, instances, seen = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]

-- The number of retained audit entries; the time for which an instance counts as present after its last heartbeat, in
-- milliseconds; and the length of a trail in characters: 100 tokens.
local MAX_AUDIT_ENTRIES, PRESENCE_MS, MAX_TRAIL_CHARS = 10000, 30000, 3300

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Whether a change was already applied. Only a repeated request can have been applied, within the last seconds.
local function is_applied(token)
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

local function append_audit(token, entry)
  redis.call('XADD', audit, 'MAXLEN', '=', MAX_AUDIT_ENTRIES, '*', 'token', token, 'entry', entry)
end

local function commit(token, entry)
  append_audit(token, entry)
  -- An ACL may forbid publishing; subscribers then learn of the change by polling.
  redis.pcall('PUBLISH', ARGV[2], token)
end

-- The trail of a change made after `token`, which had this `trail`; both may be missing.
local function trail_after(token, trail)
  return token and string.sub(token .. ' ' .. (trail or ''), 1, MAX_TRAIL_CHARS) or ''
end

-- Whether a state with this trail descends from `token`, or there is nothing to descend from.
local function descends(trail, token)
  return not token or string.find(trail, token, 1, true) ~= nil
end

-- Whether an instance has recently confirmed that it enforces the current state.
local function is_confirmed(field)
  local confirmed = tonumber(redis.call('HGET', head, field) or '0')
  return now_ms() - confirmed < PRESENCE_MS
end

-- Makes a change of lists and switches the last one. `state` has the token and the trail of the one before.
local function change_runtime(token, state)
  redis.call('HINCRBY', head, 'generation', 1)
  redis.call('HDEL', head, 'runtime_confirmed')
  redis.call('HSET', head, 'runtime_token', token, 'runtime_trail', trail_after(state[1], state[2]))
end

-- Removes expired entries.
local function sweep(key, now)
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    local ends = tonumber(string.match(all[i + 1], '^%d+')) or 0
    if ends > 0 and ends <= now then
      redis.call('HDEL', key, all[i])
    end
  end
end

-- Removes bans from the list.
local function drop_bans(ids)
  for _, id in ipairs(ids) do
    redis.call('ZREM', KEYS[7], id)
    redis.call('HDEL', KEYS[8], id)
    redis.call('ZREM', KEYS[9], id)
  end
end

-- Creates KEYS[7] and makes it the current version. If its bytes are already counted, `is_counted` must be set.
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

-- The lowest retained version number, and the total bytes.
local function retained()
  local state = redis.call('HMGET', head, 'oldest', 'bytes')
  return { state[1] or '1', state[2] or '0' }
end

local OPERATIONS = {
  -- Records a heartbeat. ARGV: the instance's id, its record, the number and the token of the version that it
  -- enforces, which is KEYS[7], or '' for none, and the token of its lists and switches. Replies the current
  -- version's number and token, or nothing; whether its files exist, or nothing if it is not KEYS[7]; the generation
  -- and its token; the size of the current version; the token of the automatic entries (see abuse.lua); and the lineage,
  -- the revision, the epoch and the floor of the overrides (see overrides.lua).
  beat = function()
    local now = now_ms()
    redis.call('HSET', instances, ARGV[4], ARGV[5])
    redis.call('HSET', seen, ARGV[4], now)
    -- One heartbeat in eight removes the absent instances, on behalf of all.
    local all = now % 8 == 0 and redis.call('HGETALL', seen) or {}
    for i = 1, #all, 2 do
      if tonumber(all[i + 1]) < now - PRESENCE_MS then
        redis.call('HDEL', instances, all[i])
        redis.call('HDEL', seen, all[i])
      end
    end
    redis.call('PEXPIRE', instances, 2 * PRESENCE_MS)
    redis.call('PEXPIRE', seen, 2 * PRESENCE_MS)
    local state = redis.call('HMGET', head, 'current', 'token', 'generation', 'runtime_token', 'size', 'abuse_token')
    local of = redis.call('HMGET', head, 'override_lineage', 'override_revision', 'override_epoch', 'override_floor')
    local is_whole = false
    if state[1] and state[1] == ARGV[6] and state[2] == ARGV[7] then
      redis.call('HSET', head, 'confirmed', now)
      is_whole = redis.call('HEXISTS', KEYS[7], 'files')
    end
    if state[4] and state[4] == ARGV[8] then
      redis.call('HSET', head, 'runtime_confirmed', now)
    end
    local reply = { state[1], state[2], is_whole, state[3] or '0', state[4] or '', state[5] or '0', state[6] or '' }
    reply[8], reply[9], reply[10], reply[11] = of[1] or '', of[2] or '0', of[3] or '0', of[4] or '0'
    return reply
  end,

  -- Replies the number of the current version, if any.
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

  -- Creates KEYS[7] and makes it the current version. ARGV: the token, the number of the version that must be current
  -- or '' for none, its own number, `meta`, `files`, and the audit log entry.
  -- Replies 'made' and the retained range, or the reason why not, with the current version's `meta` for 'stale'.
  apply = function()
    local token, based_on = ARGV[4], ARGV[5]
    if redis.call('HGET', KEYS[7], 'token') ~= token then
      local state = redis.call('HMGET', head, 'current', 'meta', 'token', 'trail')
      if (state[1] or '') ~= based_on then
        return { state[1] and 'stale' or 'lost', state[2] }
      end
      make_current(ARGV[6], token, ARGV[7], trail_after(state[3], state[4]), ARGV[8])
      commit(token, ARGV[9])
    end
    local state = retained()
    return { 'made', state[1], state[2] }
  end,

  -- Deletes KEYS[7…], oldest first, until the rest fit. ARGV: the number of the first of them, the lowest number that
  -- may be retained, and the maximum total bytes. Replies the retained range afterwards.
  trim = function()
    local current = tonumber(redis.call('HGET', head, 'current') or '0')
    local oldest, bytes = unpack(retained())
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

  -- Restores KEYS[7], which was lost, as the current version. ARGV: the token, the number, `meta`, `trail`, `files`,
  -- the audit log entry, the lowest number that may be retained, and 'steady', or 'cut off' from an instance that was
  -- disconnected.
  -- Replies 'made'; 'kept' if nothing is lost; or 'other' if the current version stands: it is newer, or was made
  -- from the remaining state, or was confirmed while the instance was disconnected.
  put_back = function()
    local token, number = ARGV[4], tonumber(ARGV[5])
    local state = redis.call('HMGET', head, 'current', 'token')
    local current = tonumber(state[1] or '0')
    local is_same = current == number and state[2] == token
    if is_same then
      if redis.call('HGET', KEYS[7], 'token') == token and redis.call('HEXISTS', KEYS[7], 'files') == 1 then
        return 'kept'
      end
    elseif current >= number or not descends(ARGV[7], state[2]) then
      return 'other'
    elseif ARGV[11] == 'cut off' and state[1] and is_confirmed('confirmed') then
      return 'other'
    end
    make_current(ARGV[5], token, ARGV[6], ARGV[7], ARGV[8], is_same)
    if not redis.call('HGET', head, 'oldest') then
      redis.call('HSET', head, 'oldest', ARGV[10])
    end
    commit(token, ARGV[9])
    return 'made'
  end,

  -- Replies the generation, its token and trail, all list entries and all switches.
  runtime = function()
    local state = redis.call('HMGET', head, 'generation', 'runtime_token', 'runtime_trail')
    local all = { redis.call('HVALS', entries), redis.call('HVALS', switches) }
    return { state[1] or '0', state[2] or '', state[3] or '', all[1], all[2] }
  end,

  -- Changes lists or switches. ARGV: the token, the audit log entry, 'put', 'replace', 'remove' or 'note', the index in
  -- KEYS of the hash to change, the field, its value, the maximum number of fields, 'some' from an instance that has seen
  -- earlier changes, or 'none', and the value to replace.
  -- Replies 'made', 'none' if there was nothing to remove or replace, 'full', or 'lost' if the earlier changes are lost.
  change = function()
    local token, what, key, field = ARGV[4], ARGV[6], KEYS[tonumber(ARGV[7])], ARGV[8]
    if is_applied(token) then
      return 'made'
    end
    if what == 'note' then
      append_audit(token, ARGV[5])
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
    elseif what == 'replace' then
      if redis.call('HGET', key, field) ~= ARGV[12] then
        return 'none'
      end
      redis.call('HSET', key, field, ARGV[9])
    elseif redis.call('HDEL', key, field) == 0 then
      return 'none'
    end
    change_runtime(token, state)
    commit(token, ARGV[5])
    return 'made'
  end,

  -- Restores lost lists and switches. ARGV: the token, the generation, the trail, the audit log entry, 'steady' or
  -- 'cut off' as above, and for each field the index in KEYS of its hash, the field and its value.
  -- Replies 'made', or 'other' if the present state stands, as above.
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
    commit(ARGV[4], ARGV[7])
    return 'made'
  end,

  -- Replies audit log entries, newest first. ARGV: the start, as XREVRANGE takes it, and the maximum number.
  audit = function()
    local items = redis.call('XREVRANGE', audit, ARGV[4], '-', 'COUNT', ARGV[5])
    for i, item in ipairs(items) do
      items[i] = { item[1], item[2][4] }
    end
    return items
  end,

  -- Adds bans to the list. ARGV: the maximum number of bans, and for each ban its id, its end, 'watch' or 'enforce', and
  -- its record. Of too many, the watched ones that end first are dropped, then the others that end first.
  -- Replies the numbers of enforced and watched bans.
  record_bans = function()
    local bans, watched, max = KEYS[7], KEYS[9], tonumber(ARGV[4])
    local now = now_ms()
    -- The others end with a later call, or with the keys.
    drop_bans(redis.call('ZRANGEBYSCORE', bans, '-inf', now, 'LIMIT', 0, 1000))
    for i = 5, #ARGV, 4 do
      local id, ends = ARGV[i], ARGV[i + 1]
      if tonumber(ends) > now then
        redis.call('ZADD', bans, ends, id)
        redis.call('HSET', KEYS[8], id, ARGV[i + 3])
        if ARGV[i + 2] == 'watch' then
          redis.call('ZADD', watched, ends, id)
        else
          redis.call('ZREM', watched, id)
        end
      end
    end
    for _, key in ipairs({ watched, bans }) do
      local excess = redis.call('ZCARD', bans) - max
      if excess > 0 then
        drop_bans(redis.call('ZRANGE', key, 0, excess - 1))
      end
    end
    local last = redis.call('ZRANGE', bans, -1, -1, 'WITHSCORES')
    if last[2] then
      for i = 7, 9 do
        redis.call('PEXPIRE', KEYS[i], math.max(1, tonumber(last[2]) - now))
      end
    end
    local watching = redis.call('ZCOUNT', watched, '(' .. now, '+inf')
    return { redis.call('ZCOUNT', bans, '(' .. now, '+inf') - watching, watching }
  end,

  -- Replies active bans, the latest end first: each one's id, end and record. ARGV: the end and the id of the ban after
  -- which they follow, and the maximum number.
  bans = function()
    local bans, now = KEYS[7], now_ms()
    local skipped = redis.call('ZCOUNT', bans, '(' .. ARGV[4], '+inf')
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', bans, ARGV[4], ARGV[4])) do
      skipped = skipped + (id >= ARGV[5] and 1 or 0)
    end
    local last = redis.call('ZCARD', bans) - 1 - skipped
    if last < 0 then
      return {}
    end
    local found = redis.call('ZRANGE', bans, math.max(0, last - tonumber(ARGV[6]) + 1), last, 'WITHSCORES')
    local page = {}
    for i = #found - 1, 1, -2 do
      local id, ends = found[i], found[i + 1]
      if tonumber(ends) <= now then
        break
      end
      page[#page + 1] = { id, ends, redis.call('HGET', KEYS[8], id) }
    end
    return page
  end,

  -- Replies the record of an active ban, if it is listed. ARGV: its id.
  ban = function()
    local ends = redis.call('ZMSCORE', KEYS[7], ARGV[4])[1]
    return ends and tonumber(ends) > now_ms() and redis.call('HGET', KEYS[8], ARGV[4])
  end,

  -- Removes a ban from the list, and lets all instances activate the lists again, after which they request each ban again.
  -- ARGV: its id, a token, and 'some' or 'none' as for `change`. Replies the number of removed ones.
  remove_ban = function()
    local removed = redis.call('HDEL', KEYS[8], ARGV[4])
    drop_bans({ ARGV[4] })
    local state = redis.call('HMGET', head, 'runtime_token', 'runtime_trail')
    -- Lost lists are restored only over a state without a token of its own.
    if state[1] or ARGV[6] == 'none' then
      change_runtime(ARGV[5], state)
      redis.pcall('PUBLISH', ARGV[2], ARGV[5])
    end
    return removed
  end,

  -- Replies a record of the region, KEYS[7], '' for none; or replaces it. ARGV: the record that is replaced, the
  -- new one, '' to read; and the time for which it is kept, in milliseconds. Replies 1 if it was replaced.
  region_tables = function()
    local record = redis.call('GET', KEYS[7]) or ''
    if ARGV[5] ~= '' and record == ARGV[4] then
      redis.call('SET', KEYS[7], ARGV[5], 'PX', ARGV[6])
      return 1
    end
    redis.call('PEXPIRE', KEYS[7], ARGV[6])
    return record
  end,

  -- Replies for each present instance the time of its last heartbeat and its record.
  instances = function()
    local now, present = now_ms(), {}
    local all = redis.call('HGETALL', seen)
    for i = 1, #all, 2 do
      local record = redis.call('HGET', instances, all[i])
      if record and tonumber(all[i + 1]) >= now - PRESENCE_MS then
        present[#present + 1] = { all[i + 1], record }
      end
    end
    return present
  end,
}

return OPERATIONS[ARGV[1]]()
