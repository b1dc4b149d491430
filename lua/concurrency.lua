-- Places held under leases; twin of src/algorithm/concurrency.rs, where it is explained.
--   limit     in places
--   lifetime  the leases' time to live, in microseconds
--   extra     of a charge: the name of the lease, or zeros for one that is named after the time
--             of what gives back: the name of the lease that ends; zeros to give so many places back
--   state     a sorted set with a member for each place, scored with the time it was taken, in microseconds since
--             the epoch: the lease's name (8 bytes), then 65535 less the place's number within the lease, big
--             endian, so that of equal times the place with the highest number is the first
local function place(name, number)
  return name .. struct.pack('>I2', UINT16_MAX - number)
end

-- The time of the place at an index, which is there.
local function taken_at(held, index)
  index = string.format('%.0f', index)
  return tonumber(redis.call('ZRANGE', held.key, index, index, 'WITHSCORES')[2])
end

-- Removes the places of a lease; returns how many there were.
local function release(held, name)
  local count = 0
  while redis.call('ZREM', held.key, place(name, count)) == 1 do
    count = count + 1
  end
  held.used = held.used - count
  return count
end

local function take(held, name, count)
  local now = string.format('%.0f', held.now.micros)
  for number = 0, count - 1 do
    redis.call('ZADD', held.key, now, place(name, number))
  end
  held.used = held.used + count
end

QUEUES[3] = {
  open = function(held)
    local now = held.now.micros
    local horizon = string.format('%.0f', now - held.lifetime)
    local last = redis.call('ZRANGE', held.key, -1, -1, 'WITHSCORES')
    held.used = 0
    held.newest = function()
      return taken_at(held, -1)
    end
    if last[1] then
      redis.call('ZREMRANGEBYSCORE', held.key, '-inf', horizon)
      held.used = redis.call('ZCARD', held.key)
      if tonumber(last[2]) > now then
        now = string.format('%.0f', now)
        for _, member in ipairs(redis.call('ZRANGEBYSCORE', held.key, '(' .. now, '+inf')) do
          redis.call('ZADD', held.key, now, member)
        end
      end
    end
  end,

  admits = function(held, hits, limit)
    return held.used + hits <= limit
  end,

  push = function(held, hits, extra)
    if extra == NOTHING then
      local now = held.now.micros
      extra = struct.pack('>I4I4', math.floor(now / 4294967296), now % 4294967296)
    end
    -- A lease that takes more places begins anew with all of them.
    take(held, extra, hits + release(held, extra))
  end,

  give_back = function(held, hits, extra)
    if extra ~= NOTHING then
      release(held, extra)
    elseif held.used > 0 then
      hits = math.min(hits, held.used)
      redis.call('ZREMRANGEBYRANK', held.key, 0, string.format('%.0f', hits - 1))
      held.used = held.used - hits
    end
  end,

  time_of = taken_at,

  pause = function()
    return 0
  end,
}
