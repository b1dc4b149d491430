-- Places held under leases; twin of src/algorithm/concurrency.rs, where it is explained.
--   limit     in places
--   lifetime  the leases' time to live, in microseconds
--   extra     of a charge: the name of the lease, or zeros for one that is named after the time
--             of what gives back: the name of the lease that ends; zeros to give so many places back
--   state     a sorted set with a member for each place, scored with the time it was taken, in microseconds since
--             the epoch: the lease's name (8 bytes), then 65535 less the place's number within the lease, big
--             endian, so that of equal times the place with the highest number is the first
-- Until the places are closed, those that have ended stay among them.
MAKE_QUEUE[3] = function()
  local function place(name, number)
    return name .. struct.pack('>I2', 65535 - number)
  end

  -- The time of the place at an index of the set, which is there.
  local function score_at(held, index)
    index = integer(index)
    return tonumber(redis.call('ZRANGE', held.key, index, index, 'WITHSCORES')[2])
  end

  -- The names of a lease's places, from the first number to before the last, but no more than one command takes.
  local function some_places(name, first, last)
    local some = {}
    for number = first, math.min(last, first + MOST_ARGUMENTS) - 1 do
      some[#some + 1] = place(name, number)
    end
    return some
  end

  -- How many places a lease has, if it has not ended. Most have one, so more are asked for each time.
  local function count_places(held, name)
    local count, step = 0, 1
    while count < held.used do
      local names = some_places(name, count, math.min(count + step, held.used))
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
    open = function(held)
      local now = held.now.micros
      held.used, held.ended = redis.call('ZCARD', held.key), 0
      if held.used == 0 then
        return
      end
      if score_at(held, -1) > now then
        now = integer(now)
        local moved = {}
        for _, member in ipairs(redis.call('ZRANGEBYSCORE', held.key, '(' .. now, '+inf')) do
          moved[#moved + 1] = now
          moved[#moved + 1] = member
          if #moved >= MOST_ARGUMENTS then
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
      local now = held.now.micros
      if extra == NOTHING then
        extra = struct.pack('>I4I4', math.floor(now / 4294967296), now % 4294967296)
      end
      -- A lease that takes more places begins anew with all of them.
      local number, last = 0, count_places(held, extra) + hits
      while number < last do
        local some = {}
        for _ = 1, math.min(last - number, MOST_ARGUMENTS / 2) do
          some[#some + 1] = integer(now)
          some[#some + 1] = place(extra, number)
          number = number + 1
        end
        redis.call('ZADD', held.key, unpack(some))
      end
      held.used = held.used + hits
      if held.ended > 0 then
        -- Some may have been of this lease.
        held.ended = count_ended(held)
      end
    end,

    give_back = function(held, hits, extra)
      if extra == NOTHING then
        hits = math.min(hits, held.used)
        if hits > 0 then
          redis.call('ZREMRANGEBYRANK', held.key, integer(held.ended), integer(held.ended + hits - 1))
        end
        held.used = held.used - hits
        return
      end
      local number, count = 0, count_places(held, extra)
      while number < count do
        local some = some_places(extra, number, count)
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

    pause = function()
      return 0
    end,

    close = function(held)
      if held.ended > 0 then
        redis.call('ZREMRANGEBYSCORE', held.key, '-inf', integer(held.horizon))
      end
    end,
  }
end
