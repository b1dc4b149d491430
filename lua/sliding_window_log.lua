-- A log of every hit that was admitted; twin of src/algorithm/sliding_window_log.rs, where it is explained.
--   limit     in hits
--   lifetime  the window, in microseconds
--   extra     of a charge: the least time between two requests that pass, in microseconds, a double
--             of an undo: when the charge stops counting, in microseconds since the epoch, a double
--   state     a list with an element for each hit, in the order of their times: the low 48 bits of the time in
--             microseconds since the epoch, big endian, which tell times apart that are less than 4 years from now
local SPAN = 281474976710656

local function pack_time(at)
  local low = at % SPAN
  return struct.pack('>I2I4', math.floor(low / 4294967296), low % 4294967296)
end

-- The time of the element at an index, which is there.
local function time_at(log, index)
  local high, low = struct.unpack('>I2I4', redis.call('LINDEX', log.key, string.format('%.0f', index)))
  local now = log.now.micros
  local at = now - now % SPAN + high * 4294967296 + low
  if at > now + SPAN / 2 then
    return at - SPAN
  elseif at < now - SPAN / 2 then
    return at + SPAN
  end
  return at
end

local function push_times(log, count)
  local time = pack_time(log.now.micros)
  for _ = 1, count do
    redis.call('RPUSH', log.key, time)
  end
end

-- How many of the oldest hits have ended: looked for in steps twice as long each time, then by halves.
local function count_ended(log)
  local horizon = log.now.micros - log.lifetime
  local ended, live = 0, 0
  while live < log.used and time_at(log, live) <= horizon do
    ended, live = live + 1, live * 2 + 1
  end
  live = math.min(live, log.used)
  while ended < live do
    local middle = math.floor((ended + live) / 2)
    if time_at(log, middle) <= horizon then
      ended = middle + 1
    else
      live = middle
    end
  end
  return ended
end

-- Moves the hits that lie ahead of now to it.
local function catch_up(log)
  local ahead = 0
  while ahead < log.used and time_at(log, -1 - ahead) > log.now.micros do
    ahead = ahead + 1
  end
  if ahead > 0 then
    redis.call('LTRIM', log.key, 0, string.format('%.0f', -1 - ahead))
    push_times(log, ahead)
  end
end

local function until_due(log, extra)
  local interval = struct.unpack('<d', extra)
  if interval == 0 or log.used == 0 then
    return 0
  end
  return math.max(log.newest() + interval - log.now.micros, 0)
end

QUEUES[2] = {
  open = function(log)
    log.used = redis.call('LLEN', log.key)
    log.newest = function()
      return time_at(log, -1)
    end
    if log.used > 0 then
      catch_up(log)
      local ended = count_ended(log)
      if ended > 0 then
        redis.call('LTRIM', log.key, string.format('%.0f', ended), -1)
        log.used = log.used - ended
      end
    end
  end,

  admits = function(log, hits, limit, extra)
    return log.used + hits <= limit and until_due(log, extra) == 0
  end,

  push = function(log, hits)
    push_times(log, hits)
    log.used = log.used + hits
  end,

  give_back = function(log, hits, extra)
    if extra ~= NOTHING then
      local at = pack_time(struct.unpack('<d', extra) - log.lifetime)
      log.used = log.used - redis.call('LREM', log.key, string.format('%.0f', -hits), at)
    elseif log.used > 0 then
      hits = math.min(hits, log.used)
      redis.call('LTRIM', log.key, 0, string.format('%.0f', -1 - hits))
      log.used = log.used - hits
    end
  end,

  time_of = time_at,

  pause = function(log, hits, extra)
    return hits > 0 and until_due(log, extra) or 0
  end,
}
