-- Automatic entries of the deny list; see entry.lua for their keys.

-- Time in milliseconds for which their audit log is kept.
local AUTOMATIC_AUDIT_TTL_MS = 2592000000

local function put_automatic(id, ends, payload)
  redis.call('ZADD', KEYS[7], ends, id)
  redis.call('HSET', KEYS[8], id, payload)
end

-- Sets the token of the last change, and lets the keys expire with the last entry.
local function commit_automatic(token)
  expire_with_last(8)
  redis.call('HSET', head, 'automatic_token', token)
end

-- Appends an entry to their audit log, with an id that no entry of the operators' log has, so that both can be read as one.
local function audit_automatic(number, entry)
  local id = string.format('%.0f-%.0f', now_ms(), 4294967296 + number)
  local arguments = { 'MAXLEN', '=', MAX_AUDIT_ENTRIES, id, 'token', '', 'entry', entry }
  local added = redis.pcall('XADD', KEYS[9], unpack(arguments))
  if type(added) == 'table' and added.err then
    -- The clock was put back.
    arguments[4] = '*'
    redis.call('XADD', KEYS[9], unpack(arguments))
  end
  redis.call('PEXPIRE', KEYS[9], AUTOMATIC_AUDIT_TTL_MS)
end

-- Adds entries. ARGV: the token, the maximum number, and for each entry its id, its end, its payload, and its audit log
-- entry. Replies for each 'listed', 'known' if the id has an entry, or 'full'.
OPERATIONS.add_automatic = function()
  local replies, is_changed = {}, false
  drop(redis.call('ZRANGEBYSCORE', KEYS[7], '-inf', now_ms()))
  local count = redis.call('ZCARD', KEYS[7])
  for i = 6, #ARGV, 4 do
    local id, payload = ARGV[i], ARGV[i + 2]
    local known = redis.call('HGET', KEYS[8], id)
    if known then
      -- The payload has the time of its creation, and so distinguishes what an earlier attempt has added.
      replies[#replies + 1] = ARGV[3] == 'again' and known == payload and 'listed' or 'known'
    elseif count >= tonumber(ARGV[5]) then
      replies[#replies + 1] = 'full'
    else
      put_automatic(id, ARGV[i + 1], payload)
      audit_automatic(i, ARGV[i + 3])
      count, is_changed = count + 1, true
      replies[#replies + 1] = 'listed'
    end
  end
  if is_changed then
    commit_automatic(ARGV[4])
    redis.pcall('PUBLISH', ARGV[2], ARGV[4])
  end
  return replies
end

-- Removes an active entry, or replaces it by an exemption. ARGV: the token, the id, the audit log entry, and the end and the
-- payload of the exemption, or '' twice. Replies 'made', or 'none' without an entry.
OPERATIONS.lift_automatic = function()
  local id = ARGV[5]
  if is_applied(ARGV[4]) then
    return 'made'
  end
  if not is_active(id) then
    return 'none'
  end
  drop({ id })
  if ARGV[8] ~= '' then
    put_automatic(id, ARGV[7], ARGV[8])
  end
  commit_automatic(ARGV[4])
  commit(ARGV[4], ARGV[6])
  return 'made'
end

-- Replies the token and the payloads; the entries of some may have ended.
OPERATIONS.automatic = function()
  return { redis.call('HGET', head, 'automatic_token') or '', redis.call('HVALS', KEYS[8]) }
end

-- Restores lost entries. ARGV: the token, and for each entry its id, its end and its payload. Replies 'made', or 'kept' if
-- nothing is lost.
OPERATIONS.put_automatic_back = function()
  if redis.call('HGET', head, 'automatic_token') then
    return 'kept'
  end
  for i = 5, #ARGV, 3 do
    put_automatic(ARGV[i], ARGV[i + 1], ARGV[i + 2])
  end
  commit_automatic(ARGV[4])
  redis.pcall('PUBLISH', ARGV[2], ARGV[4])
  return 'made'
end
