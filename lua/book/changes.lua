-- Changes of operators, and of the system for them.

-- Whether the store lacks changes of the lineage and up to the revision that the instance has.
local function is_lost(lineage, revision)
  local own = redis.call('HGET', head, 'lineage')
  return not own and lineage ~= '' or own == lineage and tonumber(revision) > last_revision()
end

-- Ends a copy of another region's records: the next one begins anew.
local function diverge()
  redis.call('HDEL', head, 'source')
end

-- The revision of a record that has not ended.
local function revision_of(key, now)
  local ends_at = redis.call('ZMSCORE', ends, key)[1]
  if ends_at and tonumber(ends_at) * 1000 <= now then
    finish(key)
  end
  return redis.call('ZMSCORE', revisions, key)[1]
end

-- Whether a change can be made: 'made', 'unlike' if the record is not as expected, or 'full'; and whether it adds a record.
local function result_of(key, base, payload, now, added)
  local known = revision_of(key, now)
  local is_expected = base == 'any' or base == 'absent' and not known or base == 'present' and known
  if not is_expected and (not known or tonumber(base) ~= tonumber(known)) then
    return 'unlike'
  end
  local is_new = payload ~= '' and not known
  local is_full = is_new and redis.call('HLEN', records) + added >= tonumber(ARGV[6])
  return is_full and 'full' or 'made', is_new
end

-- The results of a change that was made before: of a part, those that the records show; and the last of their revisions, if
-- all of them are still there.
local function repeated()
  local reply, revision, are_there = { '' }, 0, true
  for i = 11, #ARGV, 5 do
    local is_there = (redis.call('HGET', records, ARGV[i]) or '') == ARGV[i + 3]
    local known = redis.call('ZMSCORE', revisions, ARGV[i])[1]
    revision, are_there = math.max(revision, tonumber(known or '0')), are_there and is_there and known
    reply[#reply + 1] = (ARGV[5] == 'all' or is_there) and 'made' or 'unlike'
  end
  reply[1] = text(are_there and revision or last_revision())
  return reply
end

-- Time after its last entry for which the system's log, which has keys of clients, is kept: 30 days, in milliseconds.
local MAX_SYSTEM_AUDIT_MS = 2592000000

-- Appends an entry to the log. One of the system's log gets an id that no entry of the operators' log has, so that both can be
-- read as one.
local function append(now, entry)
  if ARGV[10] == 'apart' then
    local id = string.format('%.0f-4294967296', math.floor(now / 1000))
    local added = redis.pcall('XADD', audit, 'MAXLEN', '=', MAX_AUDIT_ENTRIES, id, 'token', ARGV[4], 'entry', entry)
    if type(added) ~= 'table' then
      redis.call('PEXPIRE', audit, MAX_SYSTEM_AUDIT_MS)
      return
    end
    -- There is one of this millisecond, or the clock was put back.
  end
  append_audit(ARGV[4], entry)
end

-- Changes records, all or none, or in 'each' all that can be changed. ARGV: the token, 'all' or 'each', the maximum number of
-- records, the lineage of the instance or '', its revision, the lineage to begin, 'apart' for the system's log or 'next', and
-- for each change its key; what it expects: 'any', 'absent', 'present', or the revision of the record; its end or '0'; its
-- payload, '' of a removal; and its audit log entry, '' for none. Replies 'lost', or the last revision, and for each change its
-- result as above.
OPERATIONS.change = function()
  if is_applied(ARGV[4]) then
    return repeated()
  end
  drop_incomplete()
  if is_lost(ARGV[7], ARGV[8]) then
    return { 'lost' }
  end
  local now, reply, added, is_refused, is_changed = now_us(), { '' }, 0, false, false
  local last = last_revision()
  local revision = math.max(last, now - 1)
  local function make(i)
    revision, is_changed = revision + 1, true
    apply(ACTIVE, ARGV[i], text(revision), ARGV[i + 2], ARGV[i + 3])
    if ARGV[i + 4] ~= '' then
      append(now, ARGV[i + 4])
    end
  end
  sweep(now)
  for i = 11, #ARGV, 5 do
    local result, is_new = result_of(ARGV[i], ARGV[i + 1], ARGV[i + 3], now, added)
    reply[#reply + 1], is_refused = result, is_refused or result ~= 'made'
    if ARGV[5] == 'all' then
      added = added + (is_new and 1 or 0)
    elseif result == 'made' then
      make(i)
    end
  end
  for i = 11, ARGV[5] == 'all' and not is_refused and #ARGV or 0, 5 do
    make(i)
  end
  if is_changed then
    trim()
    redis.call('HSET', head, 'lineage', redis.call('HGET', head, 'lineage') or ARGV[9])
    set_revision(revision)
    diverge()
    notify(ARGV[4])
  end
  reply[1] = text(is_changed and revision or last)
  return reply
end
