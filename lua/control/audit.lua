-- An audit log, and the notification of each change that it records. Of the overrides too, which have a log of their own.

-- Number of retained audit entries.
local MAX_AUDIT_ENTRIES = 10000

-- Whether a change was already applied. Only a repeated request can have been applied, within the last seconds.
local function is_applied(token)
  if ARGV[3] == 'first' then
    return false
  end
  for _, item in ipairs(redis.call('XREVRANGE', audit, '+', '-', 'COUNT', RECENT_CHANGES)) do
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

-- Replies audit log entries, newest first. ARGV: the start, as XREVRANGE takes it, and the maximum number.
OPERATIONS.audit = function()
  local items = redis.call('XREVRANGE', audit, ARGV[4], '-', 'COUNT', ARGV[5])
  for i, item in ipairs(items) do
    items[i] = { item[1], item[2][4] }
  end
  return items
end
