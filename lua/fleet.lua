-- Figures of traffic that instances share, the events that operators are notified of, and leases.
--   KEYS      depend on the operation; all have the hash tag of the control store
--   ARGV[1]   the operation; each operation documents the other arguments
-- Every key expires, and none grows beyond a bound that the caller states.

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local OPERATIONS = {
  -- Stores the report of an instance in KEYS[1]. ARGV: the report, and its lifetime in milliseconds. Replies the time.
  report = function()
    local now = now_ms()
    redis.call('SET', KEYS[1], now .. '\n' .. ARGV[2], 'PX', ARGV[3])
    return tostring(now)
  end,

  -- Replies the time, and the reports in KEYS, each after the time of its storage and a line feed; nil for a missing one.
  reports = function()
    local reports = #KEYS > 0 and redis.call('MGET', unpack(KEYS)) or {}
    return { tostring(now_ms()), reports }
  end,

  -- Adds to the totals of an interval, the hash KEYS[1]. ARGV: its lifetime in milliseconds, and for each total its name
  -- and the amount.
  add_totals = function()
    for i = 3, #ARGV, 2 do
      redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1])
    end
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return 1
  end,

  -- Replies the names and values of the totals of each of the intervals KEYS.
  totals = function()
    local totals = {}
    for i = 1, #KEYS do
      totals[i] = redis.call('HGETALL', KEYS[i])
    end
    return totals
  end,

  -- Appends an event to the log, the stream KEYS[1]. ARGV: its token, the event, the maximum number of events, the
  -- lifetime of the log, and the time for which KEYS[2] suppresses equal events, both in milliseconds.
  -- Replies 1, also if an earlier attempt appended it, or 0 if it is suppressed.
  log = function()
    if not redis.call('SET', KEYS[2], ARGV[2], 'NX', 'PX', ARGV[6]) then
      return redis.call('GET', KEYS[2]) == ARGV[2] and 1 or 0
    end
    redis.call('XADD', KEYS[1], 'MAXLEN', '=', ARGV[4], '*', 'event', ARGV[3])
    redis.call('PEXPIRE', KEYS[1], ARGV[5])
    return 1
  end,

  -- Replies the id and the text of events in KEYS[1], newest first. ARGV: the start, as XREVRANGE takes it, and the
  -- maximum number.
  events = function()
    local events = redis.call('XREVRANGE', KEYS[1], ARGV[2], '-', 'COUNT', ARGV[3])
    for i, event in ipairs(events) do
      events[i] = { event[1], event[2][2] }
    end
    return events
  end,

  -- Replies the oldest events of the log KEYS[1] after the position KEYS[2], oldest first. ARGV: the maximum number, the
  -- lifetime of the position, and the age of the oldest event to reply while there is no position, in milliseconds.
  undelivered = function()
    local position = redis.call('GET', KEYS[2])
    if not position then
      position = (now_ms() - tonumber(ARGV[4])) .. '-0'
      redis.call('SET', KEYS[2], position, 'PX', ARGV[3])
    end
    local after, oldest = redis.call('XREVRANGE', KEYS[1], '+', '(' .. position), {}
    for i = #after, math.max(1, #after - tonumber(ARGV[2]) + 1), -1 do
      oldest[#oldest + 1] = { after[i][1], after[i][2][2] }
    end
    return oldest
  end,

  -- Sets the position KEYS[1]. ARGV: the id of the last event that was delivered, and the lifetime in milliseconds.
  delivered = function()
    redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
    return 1
  end,

  -- Takes or renews the lease KEYS[1]. ARGV: the holder, and the time until it ends, in milliseconds. Replies whether this
  -- is the holder.
  lease = function()
    local holder = redis.call('GET', KEYS[1])
    if holder and holder ~= ARGV[2] then
      return 0
    end
    redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
    return 1
  end,
}

return OPERATIONS[ARGV[1]]()
