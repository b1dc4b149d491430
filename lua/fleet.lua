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

  -- Adds to the counts of a minute, the hash KEYS[1]. ARGV: the number of the minute since 1970, the lifetime of the counts
  -- in milliseconds, the number of fields beyond which none is made except of reporters, 'r' and an instance's id, and for
  -- each field its name and the amount.
  -- Replies 1, or 0 if it is not one of the last minutes by the server's clock.
  add_minute = function()
    local age = math.floor(now_ms() / 60000) - tonumber(ARGV[2])
    if age < -1 or age > 3 then
      return 0
    end
    local room = tonumber(ARGV[4]) - redis.call('HLEN', KEYS[1])
    for i = 5, #ARGV, 2 do
      if room <= 0 then
        -- Fields that exist take no room.
        room = tonumber(ARGV[4]) - redis.call('HLEN', KEYS[1])
      end
      if room > 0 or string.sub(ARGV[i], 1, 1) == 'r' or redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 then
        redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1])
      end
      room = room - 1
    end
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
    return 1
  end,

  -- Replies the instances with a heartbeat within the last 30 s, by the times in KEYS[2], and the counts of the minute
  -- KEYS[1].
  minute = function()
    local seen, present = redis.call('HGETALL', KEYS[2]), {}
    local oldest = now_ms() - 30000
    for i = 1, #seen, 2 do
      if tonumber(seen[i + 1]) >= oldest then
        present[#present + 1] = seen[i]
      end
    end
    return { present, redis.call('HGETALL', KEYS[1]) }
  end,

  -- Sets fields of the hash KEYS[1]. ARGV: its lifetime in milliseconds, and for each field its name and value.
  store_fields = function()
    for i = 3, #ARGV, 2 do
      redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
    end
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return 1
  end,

  -- Replies the values of fields of the hash KEYS[1]. ARGV: their names.
  read_fields = function()
    return redis.call('HMGET', KEYS[1], unpack(ARGV, 2))
  end,

  -- Removes fields of the hash KEYS[1]. ARGV: their names.
  drop_fields = function()
    return redis.call('HDEL', KEYS[1], unpack(ARGV, 2))
  end,
}

return OPERATIONS[ARGV[1]]()
