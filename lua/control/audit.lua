-- The audit log, and the notification of each change that it records. Automatic changes have a log of their own, which leaves
-- operators' entries their room.

-- Number of retained audit entries.
local MAX_AUDIT_ENTRIES = 10000

-- Entries that are read at once to find a change, and the size of those that are read at most.
local ENTRIES_OF_READ, MAX_READ_BYTES = 50, 262144

-- Whether a change was already applied. Only a repeated request can have been applied, within the last seconds.
local function is_applied(token)
  if ARGV[3] == 'first' then
    return false
  end
  local from, size = '+', 0
  for _ = 1, RECENT_CHANGES / ENTRIES_OF_READ do
    local items = redis.call('XREVRANGE', audit, from, '-', 'COUNT', ENTRIES_OF_READ)
    for _, item in ipairs(items) do
      if item[2][2] == token then
        return true
      end
      size = size + #item[2][4]
    end
    if #items < ENTRIES_OF_READ or size > MAX_READ_BYTES then
      return false
    end
    from = '(' .. items[#items][1]
  end
  return false
end

local function append_audit(token, entry)
  redis.call('XADD', audit, 'MAXLEN', '=', MAX_AUDIT_ENTRIES, '*', 'token', token, 'entry', entry)
end

local function notify(token)
  -- An ACL may forbid publishing; subscribers then learn of the change by polling.
  redis.pcall('PUBLISH', ARGV[2], token)
end

local function commit(token, entry)
  append_audit(token, entry)
  notify(token)
end

-- Records a change outside this store. ARGV: the token, and the audit log entry.
OPERATIONS.note = function()
  if not is_applied(ARGV[4]) then
    append_audit(ARGV[4], ARGV[5])
  end
  return 'made'
end

-- Replies audit log entries, newest first. ARGV: the start, as XREVRANGE takes it, and the maximum number.
OPERATIONS.audit = function()
  local items = redis.call('XREVRANGE', audit, ARGV[4], '-', 'COUNT', ARGV[5])
  for i, item in ipairs(items) do
    items[i] = { item[1], item[2][4] }
  end
  return items
end
