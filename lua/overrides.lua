-- Overrides of rules, which instances share.
--   KEYS[1]   the head of the control plane, a hash. Of overrides: `override_lineage`, which distinguishes the states of two
--             stores; `override_revision`, the last revision; `override_epoch`, the time when lost overrides were last
--             restored; and `override_floor`, the revision of the last removal that is no longer remembered. Of a copy of
--             another region's also `override_source`, which names the state that it is a copy of
--   KEYS[2]   the audit log of overrides, a stream as in control.lua
--   KEYS[3]   overrides by id, a hash
--   KEYS[4]   their revisions, a sorted set of ids; KEYS[5] the revisions of removals, a sorted set of ids; KEYS[6] the ends
--             in milliseconds since 1970 of those that have one, a sorted set of ids
--   KEYS[7…9] in `adopt`, what a whole copy has gathered of KEYS[3], KEYS[4] and KEYS[6]
--   ARGV      as in control.lua: the operation, the channel, 'first' or 'again', and the arguments of the operation
-- Each change has a revision of its own: the server's time in microseconds since 1970, or one more than the last. So a
-- change made after data was lost has a later revision than all that was lost. All operations may run twice.

local head, audit, overrides, revisions, removals, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]

-- Retained audit entries and removals, and the number of ended overrides that one change removes at most.
local MAX_AUDIT_ENTRIES, MAX_REMOVALS, MAX_SWEPT = 10000, 10000, 500

-- Time after which what a copy has gathered expires, in milliseconds: longer than the minute after which another one begins.
local MAX_GATHERED_MS = 600000

local function now_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local function text(number)
  return string.format('%.0f', number)
end

local function last_revision()
  return tonumber(redis.call('HGET', head, 'override_revision') or '0')
end

-- Whether a change was already applied. Only a repeated request can have been applied, within the last seconds.
local function is_applied(token)
  if ARGV[3] == 'first' then
    return false
  end
  for _, item in ipairs(redis.call('XREVRANGE', audit, '+', '-', 'COUNT', 500)) do
    if item[2][2] == token then
      return true
    end
  end
  return false
end

local function commit(token, entry)
  redis.call('XADD', audit, 'MAXLEN', '=', MAX_AUDIT_ENTRIES, '*', 'token', token, 'entry', entry)
  -- An ACL may forbid publishing; subscribers then learn of the change by polling.
  redis.pcall('PUBLISH', ARGV[2], token)
end

local function drop(id)
  redis.call('HDEL', overrides, id)
  redis.call('ZREM', revisions, id)
  redis.call('ZREM', ends, id)
end

local function put(id, revision, ends_at, payload)
  redis.call('HSET', overrides, id, payload)
  redis.call('ZADD', revisions, text(revision), id)
  redis.call('ZREM', removals, id)
  if ends_at == '0' then
    redis.call('ZREM', ends, id)
  else
    redis.call('ZADD', ends, ends_at, id)
  end
end

local function remove(id, revision)
  drop(id)
  redis.call('ZADD', removals, text(revision), id)
end

-- Applies a change that was made before: an override with its end or '0', or a removal, whose payload is ''.
local function apply(id, revision, ends_at, payload)
  if payload == '' then
    remove(id, revision)
  else
    put(id, revision, ends_at, payload)
  end
end

-- Forgets the oldest removals if there are too many.
local function trim()
  local excess = redis.call('ZCARD', removals) - MAX_REMOVALS
  if excess > 0 then
    local last = redis.call('ZRANGE', removals, excess - 1, excess - 1, 'WITHSCORES')
    local floor = tonumber(redis.call('HGET', head, 'override_floor') or '0')
    redis.call('HSET', head, 'override_floor', text(math.max(floor, tonumber(last[2]))))
    redis.call('ZREMRANGEBYRANK', removals, 0, excess - 1)
  end
end

-- Removes some that have ended. Instances drop these by themselves.
local function sweep(now)
  local ended = redis.call('ZRANGEBYSCORE', ends, '-inf', text(now / 1000), 'LIMIT', 0, MAX_SWEPT)
  for _, id in ipairs(ended) do
    drop(id)
  end
end

-- Whether earlier changes are lost, of which the instance has some. If there were none, this is a new lineage.
local function is_lost(known, lineage)
  if redis.call('HGET', head, 'override_lineage') then
    return false
  end
  if known == 'some' then
    return true
  end
  redis.call('HSET', head, 'override_lineage', lineage)
  return false
end

-- Ends a copy of another region's overrides: the next one begins anew.
local function diverge()
  redis.call('HDEL', head, 'override_source')
end

-- Makes a change of an operator, unless it was already applied. known, lineage: as of is_lost. make gets the next revision and
-- the time, and returns the last revision of the change, or nil and the reply to a change that it refuses.
local function change(known, lineage, make)
  local token, last = ARGV[4], last_revision()
  if is_applied(token) then
    return { 'made', text(last) }
  end
  if is_lost(known, lineage) then
    return { 'lost' }
  end
  local now = now_us()
  local revision, refusal = make(math.max(last + 1, now), now)
  if not revision then
    return { refusal }
  end
  redis.call('HSET', head, 'override_revision', text(revision))
  diverge()
  commit(token, ARGV[5])
  return { 'made', text(revision) }
end

-- Adds the first changes after a revision to a reply, in their order: for each its revision, its id, and the payload, or ''
-- of a removal.
local function add_changes(reply, revision, count)
  local from = '(' .. revision
  local kept = redis.call('ZRANGEBYSCORE', revisions, from, '+inf', 'WITHSCORES', 'LIMIT', 0, count)
  local removed = redis.call('ZRANGEBYSCORE', removals, from, '+inf', 'WITHSCORES', 'LIMIT', 0, count)
  local ids, payloads = {}, {}
  for at = 1, #kept, 2 do
    ids[#ids + 1] = kept[at]
  end
  if #ids > 0 then
    payloads = redis.call('HMGET', overrides, unpack(ids))
  end
  local k, r = 1, 1
  for _ = 1, tonumber(count) do
    local next_kept, next_removed = tonumber(kept[k + 1]), tonumber(removed[r + 1])
    local size = #reply
    if next_kept and (not next_removed or next_kept < next_removed) then
      reply[size + 1], reply[size + 2], reply[size + 3] = text(next_kept), kept[k], payloads[(k + 1) / 2] or ''
      k = k + 2
    elseif next_removed then
      reply[size + 1], reply[size + 2], reply[size + 3] = text(next_removed), removed[r], ''
      r = r + 2
    else
      break
    end
  end
  return reply
end

-- Copies the changes of ARGV and the last revision of another region, unless an instance that was faster has made them.
-- Returns false if changes before these are lost.
local function adopt_part(revision)
  local last = last_revision()
  if last < tonumber(ARGV[10]) then
    return false
  end
  for i = 11, #ARGV, 4 do
    local id, changed = ARGV[i + 1], tonumber(ARGV[i])
    if changed > last then
      apply(id, changed, ARGV[i + 2], ARGV[i + 3])
    end
  end
  trim()
  redis.call('HSET', head, 'override_source', ARGV[7])
  if tonumber(revision) > last then
    redis.call('HSET', head, 'override_revision', revision)
    commit(ARGV[4], ARGV[5])
  end
  return true
end

-- Gathers the changes of ARGV for a whole copy.
local function gather()
  for i = 11, #ARGV, 4 do
    local id = ARGV[i + 1]
    redis.call('HDEL', KEYS[7], id)
    redis.call('ZREM', KEYS[8], id)
    redis.call('ZREM', KEYS[9], id)
    if ARGV[i + 3] ~= '' then
      redis.call('HSET', KEYS[7], id, ARGV[i + 3])
      redis.call('ZADD', KEYS[8], ARGV[i], id)
      if ARGV[i + 2] ~= '0' then
        redis.call('ZADD', KEYS[9], ARGV[i + 2], id)
      end
    end
  end
  -- A key that is renamed keeps its expiry, so without permission to remove it none is set.
  if type(redis.pcall('PERSIST', KEYS[7])) == 'number' then
    for key = 7, 9 do
      redis.call('PEXPIRE', KEYS[key], MAX_GATHERED_MS)
    end
  end
end

-- Whether all overrides of a whole copy, and the ends of those that have one, are still there.
local function is_complete(count, ending)
  local gathered = { redis.call('HLEN', KEYS[7]), redis.call('ZCARD', KEYS[8]), redis.call('ZCARD', KEYS[9]) }
  return gathered[1] == count and gathered[2] == count and gathered[3] == ending
end

-- Deletes a key. Its memory is freed in the background, unless an ACL forbids that: of 200,000 overrides this takes some tenths
-- of a second, in which the server decides no limits.
local function free(key)
  if type(redis.pcall('UNLINK', key)) == 'table' then
    redis.call('DEL', key)
  end
end

-- Replaces a set by what a whole copy gathered of it.
local function replace(live, gathered, size)
  free(live)
  if size > 0 then
    redis.pcall('PERSIST', gathered)
    redis.call('RENAME', gathered, live)
  end
end

local OPERATIONS = {
  -- Puts overrides. ARGV: the token, the audit log entry, the maximum number of overrides, 'some' from an instance that has
  -- earlier changes or 'none', the lineage to begin, and for each its id, its end or '0', and its payload.
  -- Replies 'made' and the last revision, or 'full' or 'lost'.
  put = function()
    return change(ARGV[7], ARGV[8], function(revision, now)
      sweep(now)
      local added = 0
      for i = 9, #ARGV, 3 do
        added = added + 1 - redis.call('HEXISTS', overrides, ARGV[i])
      end
      if added > 0 and redis.call('HLEN', overrides) + added > tonumber(ARGV[6]) then
        return nil, 'full'
      end
      for i = 9, #ARGV, 3 do
        put(ARGV[i], revision + (i - 9) / 3, ARGV[i + 1], ARGV[i + 2])
      end
      return revision + (#ARGV - 11) / 3
    end)
  end,

  -- Puts or removes an override unless it has changed. ARGV: as of `put`, with the revision of the override that the
  -- instance has, or '0' for none, before its id; the payload is '' for a removal. Replies also 'stale' if it has changed.
  replace = function()
    return change(ARGV[7], ARGV[8], function(revision, now)
      -- The instance may have dropped one that has ended.
      sweep(now)
      local id = ARGV[10]
      local known = redis.call('ZMSCORE', revisions, id)[1] or '0'
      if tonumber(known) ~= tonumber(ARGV[9]) then
        return nil, 'stale'
      end
      if known == '0' and redis.call('HLEN', overrides) >= tonumber(ARGV[6]) then
        return nil, 'full'
      end
      if ARGV[12] == '' then
        remove(id, revision)
        trim()
      else
        put(id, revision, ARGV[11], ARGV[12])
      end
      return revision
    end)
  end,

  -- Removes an override. ARGV: the token, the audit log entry, 'some' or 'none' and a lineage as above, and the id.
  -- Replies 'made' and the last revision, or 'none' or 'lost'.
  remove = function()
    return change(ARGV[6], ARGV[7], function(revision, now)
      if redis.call('HEXISTS', overrides, ARGV[8]) == 0 then
        return nil, 'none'
      end
      sweep(now)
      remove(ARGV[8], revision)
      trim()
      return revision
    end)
  end,

  -- Replies the lineage, the last revision and the epoch, and the first changes after a revision, as above. ARGV: that
  -- revision, and the maximum number of changes.
  since = function()
    local state = redis.call('HMGET', head, 'override_lineage', 'override_revision', 'override_epoch')
    return add_changes({ state[1] or '', state[2] or '0', state[3] or '0' }, ARGV[4], ARGV[5])
  end,

  -- Replies the same to another region, with 'part' for the changes after a revision of its copy, or 'whole' if the copy
  -- has to begin anew: then for all changes. ARGV: the lineage, the revision and the epoch of which it is a copy, 'first',
  -- or 'next' for a further page, and the maximum number of changes.
  read = function()
    local state = redis.call('HMGET', head, 'override_lineage', 'override_revision', 'override_epoch', 'override_floor')
    local lineage, epoch, from = state[1] or '', state[3] or '0', tonumber(ARGV[5])
    local is_copy = ARGV[4] == lineage and ARGV[6] == epoch and from <= tonumber(state[2] or '0')
    local has_removals = ARGV[7] == 'next' or from >= tonumber(state[4] or '0')
    local is_part = is_copy and has_removals
    local reply = { lineage, state[2] or '0', epoch, is_part and 'part' or 'whole' }
    return add_changes(reply, is_part and ARGV[5] or '0', ARGV[8])
  end,

  -- Restores changes that were lost, each unless the store has the same or a later one. ARGV: the token, the audit log
  -- entry, the lineage, the last revision of the instance, 'more' or 'last' for a part of them, and for each change its
  -- revision, its id, its end or '0', and its payload, or '' of a removal. Replies 'made', or 'other' if the store has
  -- another lineage.
  restore = function()
    local lineage = redis.call('HGET', head, 'override_lineage')
    if lineage and lineage ~= ARGV[6] then
      return 'other'
    end
    redis.call('HSET', head, 'override_lineage', ARGV[6])
    diverge()
    local restored = 0
    for i = 9, #ARGV, 4 do
      local revision, id = tonumber(ARGV[i]), ARGV[i + 1]
      local known = redis.call('ZMSCORE', revisions, id)[1] or redis.call('ZMSCORE', removals, id)[1]
      if not known or tonumber(known) < revision then
        restored = restored + 1
        apply(id, revision, ARGV[i + 2], ARGV[i + 3])
      end
    end
    trim()
    if restored > 0 then
      redis.call('HINCRBY', head, 'override_restored', restored)
    end
    if ARGV[8] == 'last' then
      local last = math.max(last_revision(), tonumber(ARGV[7]))
      redis.call('HSET', head, 'override_revision', text(last))
      -- Instances may be past the revisions that were restored, so they fetch all again.
      if redis.call('HDEL', head, 'override_restored') == 1 then
        redis.call('HSET', head, 'override_epoch', text(now_us()))
        commit(ARGV[4], ARGV[5])
      end
    end
    return 'made'
  end,

  -- Copies changes of another region. ARGV: the token, the audit log entry, the source that the copy has, the one that it has
  -- afterwards, the last revision afterwards, and 'part' for further changes of the same source, or one step of a whole
  -- copy: 'begin', 'more', 'end', at which it replaces what there is, or 'release' of one that has failed. Then for 'part'
  -- the revision after which the changes are; for 'end' a lineage, the number of overrides, and the number of those with an
  -- end; else ''. For 'part' and 'more' follow of each change its revision, its id, its end or '0', and its payload, or ''
  -- of a removal. Replies 'made', 'other' if the copy has another source or a lower revision, or 'lacking' if not all of a
  -- whole copy is there.
  adopt = function()
    local step, source = ARGV[9], redis.call('HGET', head, 'override_source') or ''
    if source ~= ARGV[6] then
      -- An earlier attempt may have made the step.
      return ARGV[3] == 'again' and source == ARGV[7] and 'made' or 'other'
    end
    if step == 'part' then
      return adopt_part(ARGV[8]) and 'made' or 'other'
    end
    if step == 'begin' or step == 'release' then
      free(KEYS[7])
      free(KEYS[8])
      free(KEYS[9])
    elseif step == 'more' then
      gather()
    else
      if not is_complete(tonumber(ARGV[11]), tonumber(ARGV[12])) then
        return 'lacking'
      end
      local size = redis.call('HLEN', KEYS[7])
      if size > 0 then
        -- Changes nothing. An ACL may forbid it, before there is any change.
        redis.call('RENAME', KEYS[7], KEYS[7])
      end
      replace(overrides, KEYS[7], size)
      replace(revisions, KEYS[8], redis.call('ZCARD', KEYS[8]))
      replace(ends, KEYS[9], redis.call('ZCARD', KEYS[9]))
      redis.call('DEL', removals)
      redis.call('HDEL', head, 'override_floor')
      redis.call('HSET', head, 'override_lineage', ARGV[10], 'override_epoch', text(now_us()))
      redis.call('HSET', head, 'override_revision', ARGV[8])
      commit(ARGV[4], ARGV[5])
    end
    redis.call('HSET', head, 'override_source', ARGV[7])
    return 'made'
  end,

  -- Replies audit log entries, as in control.lua.
  audit = function()
    local items = redis.call('XREVRANGE', audit, ARGV[4], '-', 'COUNT', ARGV[5])
    for i, item in ipairs(items) do
      items[i] = { item[1], item[2][4] }
    end
    return items
  end,
}

return OPERATIONS[ARGV[1]]()
