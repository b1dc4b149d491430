-- Permits held under leases; twin of crates/core/src/algorithm/concurrency.rs, which explains the algorithm.
--   limit     in permits
--   lifetime  the leases' time to live, in microseconds
--   extra     of a charge: the name of the lease, or zeros for a lease named after the time
--             of a refund: the name of the lease that ends; zeros to return this many permits
--   state     a sorted set with a member for each permit, scored with the time it was taken, in microseconds since
--             the epoch: the lease's name (8 bytes), then 65535 less the permit's number within the lease, big
--             endian, so that of equal times the permit with the highest number is the first
-- Until the set is closed, expired permits stay in it.
MAKE_QUEUE[3] = function()
  local function member(name, number)
    return name .. struct.pack('>I2', 65535 - number)
  end

  -- The time of the permit at an index of the set, or 0.
  local function score_at(held, index)
    index = integer(index)
    local found = redis.call('ZRANGE', held.key, index, index, 'WITHSCORES')
    return tonumber(found[2] or 0)
  end

  -- The members of a lease, from the first number to before the last, limited to the arguments of one command.
  local function lease_members(name, first, last)
    local some = {}
    for number = first, math.min(last, first + MAX_ARGUMENTS) - 1 do
      some[#some + 1] = member(name, number)
    end
    return some
  end

  -- The number of permits of a lease, if it has not expired. Most leases have one, so the batches grow.
  local function count_permits(held, name)
    local count, step = 0, 1
    while count < held.used do
      local names = lease_members(name, count, math.min(count + step, held.used))
      for _, at in ipairs(redis.call('ZMSCORE', held.key, unpack(names))) do
        if not at or tonumber(at) <= held.horizon then
          return count
        end
        count = count + 1
      end
      step = step * 4
    end
    return count
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
      local newest = score_at(held, -1)
      held.is_ahead = newest > now
      if newest > now + 4 * held.lifetime then
        now = integer(now)
        local moved = {}
        for _, member in ipairs(redis.call('ZRANGEBYSCORE', held.key, '(' .. now, '+inf')) do
          moved[#moved + 1] = now
          moved[#moved + 1] = member
          if #moved >= MAX_ARGUMENTS then
            redis.call('ZADD', held.key, unpack(moved))
            moved = {}
          end
        end
        if #moved > 0 then
          redis.call('ZADD', held.key, unpack(moved))
        end
      end
      if score_at(held, 0) <= held.horizon then
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
        at = math.max(at, score_at(held, -1))
      end
      if extra == NOTHING then
        extra = struct.pack('>I4I4', math.floor(now / 4294967296), now % 4294967296)
      end
      -- A lease that takes more permits starts anew with all of them.
      local number, last = 0, count_permits(held, extra) + hits
      while number < last do
        local some = {}
        for _ = 1, math.min(last - number, MAX_ARGUMENTS / 2) do
          some[#some + 1] = integer(at)
          some[#some + 1] = member(extra, number)
          number = number + 1
        end
        redis.call('ZADD', held.key, unpack(some))
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
          redis.call('ZREMRANGEBYRANK', held.key, integer(held.ended), integer(held.ended + hits - 1))
        end
        held.used = held.used - hits
        return
      end
      local number, count = 0, count_permits(held, extra)
      while number < count do
        local some = lease_members(extra, number, count)
        redis.call('ZREM', held.key, unpack(some))
        number = number + #some
      end
      held.used = held.used - count
    end,

    newest = function(held)
      return held.last or score_at(held, -1)
    end,

    time_of = function(held, index)
      return score_at(held, held.ended + index)
    end,

    spacing_delay = function()
      return 0
    end,

    close = function(held)
      if held.ended > 0 then
        redis.call('ZREMRANGEBYSCORE', held.key, '-inf', integer(held.horizon))
      end
    end,
  }
end
