-- Figures of traffic that instances share, and the events that operators are notified of. Reports and events are read, and the
-- position of the delivery is written, by plain commands.
--   KEYS      depend on the operation; all have the hash tag of the control store
--   ARGV[1]   the operation; each operation documents the other arguments
-- Every key expires, and none grows beyond a bound that the caller states.

local OPERATIONS = {
  -- Stores the report of an instance in KEYS[1], adds to the totals of intervals, the hashes from KEYS[3] on, and takes or
  -- renews the lease KEYS[2]. ARGV: the instance, the report, the lifetimes in milliseconds of the report, of the lease and of
  -- totals, and for each total the index of its key, its name and the amount. Replies the time, and whether the instance leads.
  round = function()
    local time, holder = redis.call('TIME'), redis.call('GET', KEYS[2])
    local now = tostring(tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
    redis.call('SET', KEYS[1], now .. '\n' .. ARGV[3], 'PX', ARGV[4])
    for i = 7, #ARGV, 3 do
      redis.call('HINCRBY', KEYS[tonumber(ARGV[i])], ARGV[i + 1], ARGV[i + 2])
    end
    for i = 3, #KEYS do
      redis.call('PEXPIRE', KEYS[i], ARGV[6])
    end
    if holder and holder ~= ARGV[2] then
      return { now, 0 }
    end
    redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[5])
    return { now, 1 }
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
}

return OPERATIONS[ARGV[1]]()
