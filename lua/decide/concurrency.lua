-- Permits held under leases; twin of crates/core/src/algorithm/concurrency.rs, which explains the algorithm.
--   limit     in permits
--   lifetime  the leases' time to live, in microseconds
--   extra     of a charge: the name of the lease, or zeros for a lease named after the time
--             of a refund: the name of the lease that ends; zeros to return this many permits
--   state     a sorted set with a member for each permit, scored with the time it was taken, in microseconds since
--             the epoch: the lease's name (8 bytes), then 65535 less the permit's number within the lease, big
--             endian, so that of equal times the permit with the highest number is the first
-- Expired permits stay in the set until it is closed, or longer if there are many.
MAKE_QUEUE[KIND_CONCURRENCY] = function()
  local function member(name, number)
    return name .. struct.pack('>I2', 65535 - number)
  end

  -- The permit at an index of the set, or none, and its time, or 0. While permits of a clock that was ahead are left to later
  -- commands, they count as of now.
  local function permit_at(held, index)
    index = integer(index)
    local found = redis.call('ZRANGE', held.key, index, index, 'WITHSCORES')
    local at = tonumber(found[2] or 0)
    return found[1], held.latest and math.min(at, held.latest) or at
  end

  local function time_at(held, index)
    return select(2, permit_at(held, index))
  end

  -- The number of permits of a lease, if it has not expired, and the index of the first of them if there are several. All of
  -- them have one time, at which they stand together, the one with the highest number first.
  local function find_permits(held, name)
    local times = redis.call('ZMSCORE', held.key, member(name, 0), member(name, 1))
    local at = times[1]
    if not at or tonumber(at) <= held.horizon then
      return 0
    elseif not times[2] then
      return 1
    end
    local high, low = struct.unpack('>I4I4', name)
    local first = redis.call('ZCOUNT', held.key, '-inf', '(' .. at)
    local last = first + redis.call('ZCOUNT', held.key, at, at) - 1
    if string.sub((permit_at(held, first)), 1, 8) == name then
      last = first
    end
    -- Others were acquired at this time too.
    while first < last do
      local middle = math.floor((first + last) / 2)
      local of_high, of_low = struct.unpack('>I4I4', (permit_at(held, middle)))
      if of_high < high or of_high == high and of_low < low then
        first = middle + 1
      else
        last = middle
      end
    end
    return 65536 - struct.unpack('>I2', (permit_at(held, first)), 9), first
  end

  local function count_ended(held)
    return redis.call('ZCOUNT', held.key, '-inf', integer(held.horizon))
  end

  return {
    -- Permits that are released leave no key, so few keys live this long.
    retention = 600000000,

    open = function(held)
      local now = held.now.micros
      held.used, held.ended = redis.call('ZCARD', held.key), 0
      if held.used == 0 then
        return
      end
      local newest = time_at(held, -1)
      held.is_ahead = newest > now
      if newest > now + 4 * held.lifetime then
        held.is_ahead, held.latest = false, now
        now = integer(now)
        local ahead = redis.call('ZRANGEBYSCORE', held.key, '(' .. now, '+inf', 'LIMIT', 0, upkeep_left)
        local count = #ahead
        if count > 0 and count == upkeep_left then
          -- The permits of a lease keep one time: the last lease, which may have more of them, is left, unless it is the only one.
          local last = string.sub(ahead[count], 1, 8)
          repeat
            count = count - 1
          until count == 0 or string.sub(ahead[count], 1, 8) ~= last
          count = count > 0 and count or #ahead
        end
        upkeep_left = upkeep_left - count
        for from = 1, count, MAX_ARGUMENTS do
          local moved = {}
          for at = from, math.min(from + MAX_ARGUMENTS - 1, count) do
            moved[#moved + 1] = now
            moved[#moved + 1] = ahead[at]
          end
          write_command('ZADD', held.key, unpack(moved))
        end
      end
      if time_at(held, 0) <= held.horizon then
        held.ended = count_ended(held)
        held.used = held.used - held.ended
      end
    end,

    admits = function(held, hits, limit)
      return held.used + hits <= limit
    end,

    push = function(held, hits, extra)
      local now, at = held.now.micros, held.now.micros
      if held.is_ahead then
        at = math.max(at, time_at(held, -1))
      end
      if extra == NOTHING then
        extra = struct.pack('>I4I4', math.floor(now / 4294967296), now % 4294967296)
      end
      -- A lease that takes more permits starts anew with all of them.
      local number, last = 0, find_permits(held, extra) + hits
      while number < last do
        local some = {}
        for _ = 1, math.min(last - number, MAX_ARGUMENTS / 2) do
          some[#some + 1] = integer(at)
          some[#some + 1] = member(extra, number)
          number = number + 1
        end
        write_command('ZADD', held.key, unpack(some))
      end
      held.used = held.used + hits
      if held.ended > 0 then
        -- Some of the expired permits may have been of this lease.
        held.ended = count_ended(held)
      end
      return at
    end,

    refund = function(held, hits, extra)
      if extra == NOTHING then
        hits = math.min(hits, held.used)
        if hits > 0 then
          write_command('ZREMRANGEBYRANK', held.key, integer(held.ended), integer(held.ended + hits - 1))
        end
        held.used = held.used - hits
        return
      end
      local count, first = find_permits(held, extra)
      if first then
        write_command('ZREMRANGEBYRANK', held.key, integer(first), integer(first + count - 1))
      elseif count > 0 then
        write_command('ZREM', held.key, member(extra, 0))
      end
      held.used = held.used - count
    end,

    newest = function(held)
      return held.last or time_at(held, -1)
    end,

    time_of = function(held, index)
      return time_at(held, held.ended + index)
    end,

    spacing_delay = function()
      return 0
    end,

    close = function(held)
      if held.ended > 0 and removals_left > 0 then
        local ended = math.min(held.ended, removals_left)
        write_command('ZREMRANGEBYRANK', held.key, 0, integer(ended - 1))
        removals_left = removals_left - ended
      end
    end,
  }
end
