-- Entries of the adaptive deny list, which instances share, and the reports by which they find abuse.
--   KEYS[1]   the head of the control plane, a hash: `abuse_token` is the token of the last change of entries
--   KEYS[2]   the audit log of operators' changes, KEYS[5] that of automatic entries: streams as in control/entry.lua
--   KEYS[3]   records by id, a hash: the end of the entry, its mode ('e' enforced, 'd' dry run, 'x' exempt from listing),
--             the number of offences, the time when they are forgotten, and the time when it was added. Times are in
--             milliseconds since 1970, by the server's clock. A record outlives its entry until its offences are forgotten
--   KEYS[4]   payloads of entries by id, a hash
--   KEYS[6]   reports, a hash: 'i:' and an instance's id to the time and the report; `leader`, the time until which an
--             instance evaluates them, and its id; `count`, the number of present instances; and `watch`
--   ARGV      as in control/entry.lua: the operation, the channel, 'first' or 'again', and the arguments of the operation
-- All operations may run twice.

local head, audit, records, payloads, own_audit, reports = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]

-- Retained audit entries; times to live in milliseconds of that log, and of the other keys beyond their content.
local MAX_AUDIT_ENTRIES, AUDIT_TTL_MS, TTL_MARGIN_MS = 10000, 2592000000, 60000

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function parse(record)
  local ends, mode, offences, forgotten, created =
    string.match(record or '', '^(%d+) (%l) (%d+) (%d+) (%d+)$')
  return tonumber(ends or 0), mode, tonumber(offences or 0), tonumber(forgotten or 0), created
end

local function put(id, ends, mode, offences, forgotten, created, payload)
  local record = string.format('%.0f %s %.0f %.0f %.0f', ends, mode, offences, forgotten, created)
  redis.call('HSET', records, id, record)
  redis.call('HSET', payloads, id, payload)
end

local function remove(id)
  redis.call('HDEL', records, id)
  redis.call('HDEL', payloads, id)
end

-- Removes what has ended or is forgotten. Returns the number of active entries, the ids of the remembered records, and
-- the time when the last record is forgotten.
local function sweep(now)
  local active, remembered, last = 0, {}, now
  local all = redis.call('HGETALL', records)
  for i = 1, #all, 2 do
    local ends, _, _, forgotten = parse(all[i + 1])
    if ends > now then
      active = active + 1
    elseif forgotten <= now then
      remove(all[i])
    else
      redis.call('HDEL', payloads, all[i])
      remembered[#remembered + 1] = { forgotten, all[i] }
    end
    last = math.max(last, forgotten)
  end
  return active, remembered, last
end

local function commit(token, now, last)
  local ttl = string.format('%.0f', last - now + TTL_MARGIN_MS)
  redis.call('PEXPIRE', records, ttl)
  redis.call('PEXPIRE', payloads, ttl)
  redis.call('HSET', head, 'abuse_token', token)
  -- An ACL may forbid publishing; subscribers then learn of the change by polling.
  redis.pcall('PUBLISH', ARGV[2], token)
end

-- An id that no entry of the operators' log has, so that both logs can be read as one.
local function append_own_audit(now, number, entry)
  local id = string.format('%.0f-%.0f', now, 4294967296 + number)
  local arguments = { 'MAXLEN', '=', MAX_AUDIT_ENTRIES, id, 'token', '', 'entry', entry }
  local added = redis.pcall('XADD', own_audit, unpack(arguments))
  if type(added) == 'table' and added.err then
    -- The clock was put back.
    arguments[4] = '*'
    redis.call('XADD', own_audit, unpack(arguments))
  end
  redis.call('PEXPIRE', own_audit, AUDIT_TTL_MS)
end

local OPERATIONS = {
  -- Stores an instance's report. ARGV: its id, the report, the time for which reports count and that for which an
  -- instance leads, in milliseconds, and what all instances are to watch, or '' for no change, which only the leader
  -- sets. Replies whether the instance leads, the number of present instances, what to watch, and for the leader the
  -- present reports: ids and reports.
  exchange = function()
    local now, id = now_ms(), ARGV[4]
    local till, leader = string.match(redis.call('HGET', reports, 'leader') or '', '^(%d+) (.*)$')
    -- A lead or a report that is further ahead is of a time before the clock was put back.
    local is_leader = not till or tonumber(till) <= now or tonumber(till) > now + tonumber(ARGV[7]) or leader == id
    redis.call('HSET', reports, 'i:' .. id, string.format('%.0f ', now) .. ARGV[5])
    redis.call('PEXPIRE', reports, TTL_MARGIN_MS)
    if not is_leader then
      local shared = redis.call('HMGET', reports, 'count', 'watch')
      return { 0, shared[1] or '1', shared[2] or '', {} }
    end
    redis.call('HSET', reports, 'leader', string.format('%.0f ', now + tonumber(ARGV[7])) .. id)
    if ARGV[8] ~= '' then
      redis.call('HSET', reports, 'watch', ARGV[8])
    end
    local count, present = 0, {}
    local all = redis.call('HGETALL', reports)
    for i = 1, #all, 2 do
      local instance = string.match(all[i], '^i:(.*)$')
      local seen = instance and tonumber(string.match(all[i + 1], '^%d+'))
      if seen and math.abs(now - seen) > tonumber(ARGV[6]) then
        redis.call('HDEL', reports, all[i])
      elseif seen then
        count = count + 1
        present[#present + 1] = instance
        present[#present + 1] = string.sub(all[i + 1], string.find(all[i + 1], ' ', 1, true) + 1)
      end
    end
    redis.call('HSET', reports, 'count', count)
    return { 1, tostring(count), redis.call('HGET', reports, 'watch') or '', present }
  end,

  -- Adds entries. ARGV: the token, the maximum number of active entries for additions in mode 'e' and 'd', the maximum
  -- number of records, and for each entry its id, mode, the first and the longest time to live and the time that
  -- forgives one offence in milliseconds, its payload, and its audit log entry. Replies for each 'listed', 'known' if
  -- the key has an entry, or 'full'. A dry run gives way to an entry that is enforced, and its offences do not count.
  add = function()
    local now, replies, is_changed = now_ms(), {}, false
    local most = { e = tonumber(ARGV[5]), d = tonumber(ARGV[6]) }
    local active, remembered, last = sweep(now)
    local count = active + #remembered
    table.sort(remembered, function(a, b) return a[1] < b[1] end)
    local oldest = 1
    for i = 8, #ARGV, 7 do
      local id, mode, forgive = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 4])
      local ends, known_mode, offences, forgotten = parse(redis.call('HGET', records, id))
      local is_active = ends > now
      if is_active and not (known_mode == 'd' and mode == 'e') then
        -- The payload has the time of its creation, and so distinguishes what an earlier attempt has added.
        local is_own = ARGV[3] == 'again' and redis.call('HGET', payloads, id) == ARGV[i + 5]
        replies[#replies + 1] = is_own and 'listed' or 'known'
      elseif not is_active and active >= most[mode] then
        replies[#replies + 1] = 'full'
      else
        local left = known_mode == mode and math.ceil((forgotten - now) / forgive) or 0
        local before = math.max(0, math.min(offences, left, 30))
        local duration = math.min(tonumber(ARGV[i + 3]), tonumber(ARGV[i + 2]) * 2 ^ before)
        active = active + (is_active and 0 or 1)
        while not known_mode and count >= tonumber(ARGV[7]) and remembered[oldest] do
          -- An earlier entry of this call may have listed it again.
          if parse(redis.call('HGET', records, remembered[oldest][2])) <= now then
            remove(remembered[oldest][2])
            count = count - 1
          end
          oldest = oldest + 1
        end
        count = count + (known_mode and 0 or 1)
        local till = now + duration + (before + 1) * forgive
        put(id, now + duration, mode, before + 1, till, now, ARGV[i + 5])
        last, is_changed = math.max(last, till), true
        append_own_audit(now, i, ARGV[i + 6])
        replies[#replies + 1] = 'listed'
      end
    end
    if is_changed then
      commit(ARGV[4], now, last)
    end
    return replies
  end,

  -- Removes an active entry with its offences, or replaces it by an exemption. ARGV: the token, the id, the audit log
  -- entry, and the end, the beginning and the payload of the exemption, or '0', '0' and ''. Replies 'made', or 'none' without an entry.
  lift = function()
    local now, id, ends = now_ms(), ARGV[5], tonumber(ARGV[7])
    if ARGV[3] == 'again' and redis.call('HGET', head, 'abuse_token') == ARGV[4] then
      return 'made'
    end
    if parse(redis.call('HGET', records, id)) <= now then
      return ARGV[3] == 'again' and 'made' or 'none'
    end
    local _, _, last = sweep(now)
    if ends > now then
      put(id, ends, 'x', 0, ends, tonumber(ARGV[8]), ARGV[9])
    else
      remove(id)
    end
    redis.call('XADD', audit, 'MAXLEN', '=', MAX_AUDIT_ENTRIES, '*', 'token', ARGV[4], 'entry', ARGV[6])
    commit(ARGV[4], now, math.max(last, ends))
    return 'made'
  end,

  -- Replies the token, and the records and payloads of the active entries.
  list = function()
    local now, found = now_ms(), {}
    local all, bodies, payload = redis.call('HGETALL', records), redis.call('HGETALL', payloads), {}
    for i = 1, #bodies, 2 do
      payload[bodies[i]] = bodies[i + 1]
    end
    for i = 1, #all, 2 do
      if parse(all[i + 1]) > now and payload[all[i]] then
        found[#found + 1] = all[i + 1]
        found[#found + 1] = payload[all[i]]
      end
    end
    return { redis.call('HGET', head, 'abuse_token') or '', found }
  end,

  -- Restores lost entries. ARGV: the token, and for each entry the id, its end, mode, offences, the time when they are
  -- forgotten, when it was added, and its payload. Replies 'made', or 'kept' if nothing is lost.
  restore = function()
    if redis.call('HGET', head, 'abuse_token') then
      return 'kept'
    end
    local now = now_ms()
    local last = now
    for i = 5, #ARGV, 7 do
      put(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5], ARGV[i + 6])
      last = math.max(last, tonumber(ARGV[i + 4]))
    end
    commit(ARGV[4], now, last)
    return 'made'
  end,

  -- Replies audit log entries of automatic entries, as in control/audit.lua.
  audit = function()
    local items = redis.call('XREVRANGE', own_audit, ARGV[4], '-', 'COUNT', ARGV[5])
    for i, item in ipairs(items) do
      items[i] = { item[1], item[2][4] }
    end
    return items
  end,
}

return OPERATIONS[ARGV[1]]()
