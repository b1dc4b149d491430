-- Log of every admitted hit; twin of crates/core/src/algorithm/sliding_window_log.rs, which explains the algorithm.
--   limit     in hits
--   lifetime  the window, in microseconds
--   extra     of a charge: the minimum interval between two passing requests, in microseconds, a double
--             of a refund: the time of the charge, in microseconds since the epoch, a double
--   state     a list with an element for each hit, in the order of their times: the low 48 bits of the time in
--             microseconds since the epoch, big endian, which distinguish times less than 4 years from now
-- Until the log is closed, expired hits stay at its front, and refunded hits at its end: log.refunded. log.oldest is the
-- time of the first hit, if it was read and no hit has expired.
MAKE_QUEUE[KIND_SLIDING_WINDOW_LOG] = function()
  local SPAN = 281474976710656

  local function pack_time(at)
    local low = at % SPAN
    return struct.pack('>I2I4', math.floor(low / 4294967296), low % 4294967296)
  end

  -- The time of the element at an existing index of the list.
  local function element_time(log, index)
    local high, low = struct.unpack('>I2I4', redis.call('LINDEX', log.key, integer(index)))
    local now = log.now.micros
    local at = now - now % SPAN + high * 4294967296 + low
    if at > now + SPAN / 2 then
      return at - SPAN
    elseif at < now - SPAN / 2 then
      return at + SPAN
    end
    return at
  end

  local function last_time(log)
    return log.last or element_time(log, log.ended + log.used - 1)
  end

  -- While hits of a clock that was ahead are left to a later command, they count as of now.
  local function newest_of(log)
    local newest = last_time(log)
    return log.latest and math.min(newest, log.latest) or newest
  end

  -- The number of hits not later than a time: an exponential search, then a binary one.
  local function count_until(log, time)
    local until_then, later = 0, 0
    if log.used > 0 then
      local oldest = element_time(log, 0)
      if oldest > time then
        log.oldest = oldest
        return 0
      end
      until_then, later = 1, 1
    end
    while later < log.used and element_time(log, later) <= time do
      until_then, later = later + 1, later * 2 + 1
    end
    later = math.min(later, log.used)
    while until_then < later do
      local middle = math.floor((until_then + later) / 2)
      if element_time(log, middle) <= time then
        until_then = middle + 1
      else
        later = middle
      end
    end
    return until_then
  end

  local function append(log, hits, at)
    local time = pack_time(at)
    while hits > 0 do
      local some = {}
      for i = 1, math.min(hits, MAX_ARGUMENTS) do
        some[i] = time
      end
      write_command('RPUSH', log.key, unpack(some))
      hits = hits - #some
    end
  end

  -- Moves hits with a time in the future to now.
  local function clamp_to_now(log)
    local now = log.now.micros
    local kept = count_until(log, now)
    log.oldest = nil
    local ahead = log.used - kept
    if kept > 0 then
      write_command('LTRIM', log.key, 0, integer(kept - 1))
      append(log, ahead, now)
    else
      append(log, ahead, now)
      write_command('LTRIM', log.key, integer(ahead), -1)
    end
  end

  local function until_due(log, extra)
    local interval = struct.unpack('<d', extra)
    if interval == 0 or log.used == 0 then
      return 0
    end
    return math.max(newest_of(log) + interval - log.now.micros, 0)
  end

  return {
    retention = 0,

    open = function(log)
      log.used = redis.call('LLEN', log.key)
      log.ended, log.refunded = 0, 0
      if log.used == 0 then
        return
      end
      local newest = element_time(log, log.used - 1)
      log.last = newest
      if newest > log.now.micros then
        local is_beyond = newest > log.now.micros + 4 * log.lifetime
        if is_beyond and upkeep_left > 0 then
          clamp_to_now(log)
          log.last = log.now.micros
          -- An element of a list takes a quarter of the time of one of a set.
          upkeep_left = math.max(upkeep_left - math.ceil(log.used / 4), 0)
        else
          log.is_ahead, log.latest = true, is_beyond and log.now.micros or nil
        end
      end
      log.ended = count_until(log, log.horizon)
      log.used = log.used - log.ended
    end,

    admits = function(log, hits, limit, extra)
      return log.used + hits <= limit and until_due(log, extra) == 0
    end,

    push = function(log, hits)
      local at, left = log.now.micros, hits
      if log.is_ahead and log.used > 0 then
        at = math.max(at, last_time(log))
      end
      local time = log.refunded > 0 and pack_time(at)
      while left > 0 and log.refunded > 0 do
        write_command('LSET', log.key, integer(log.ended + log.used + hits - left), time)
        left, log.refunded = left - 1, log.refunded - 1
      end
      append(log, left, at)
      log.used = log.used + hits
      return at
    end,

    refund = function(log, hits, extra)
      if extra == NOTHING then
        hits = math.min(hits, log.used)
        log.refunded = log.refunded + hits
        log.used = log.used - hits
        if log.used == 0 then
          log.oldest = nil
        end
        return
      end
      local at = struct.unpack('<d', extra)
      if at > log.horizon and log.used > 0 then
        -- Other hits remain, and so does the key.
        write_command('LTRIM', log.key, 0, integer(-1 - log.refunded))
        log.refunded, log.oldest = 0, nil
        log.used = log.used - redis.call('LREM', log.key, integer(-hits), pack_time(at))
      end
    end,

    newest = newest_of,

    time_of = function(log, index)
      return index == 0 and log.oldest or math.min(element_time(log, log.ended + index), log.latest or math.huge)
    end,

    spacing_delay = function(log, hits, extra)
      return hits > 0 and until_due(log, extra) or 0
    end,

    close = function(log)
      if log.ended > 0 or log.refunded > 0 then
        write_command('LTRIM', log.key, integer(log.ended), integer(-1 - log.refunded))
      end
    end,
  }
end
