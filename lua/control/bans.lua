-- The list of active bans; see entry.lua for its keys.

-- Removes ids from the sorted set KEYS[7], which has their ends, and from the hash KEYS[8].
local function drop(ids)
  for _, id in ipairs(ids) do
    redis.call('ZREM', KEYS[7], id)
    redis.call('HDEL', KEYS[8], id)
  end
end

-- Lets the keys from KEYS[7] to another one expire with the last id of KEYS[7].
local function expire_with_last(last_key)
  local last, now = redis.call('ZRANGE', KEYS[7], -1, -1, 'WITHSCORES'), now_ms()
  for i = 7, last[2] and last_key or 0 do
    redis.call('PEXPIRE', KEYS[i], math.max(1, tonumber(last[2]) - now))
  end
end

-- Whether an id of KEYS[7] has not ended.
local function is_active(id)
  local ends = redis.call('ZMSCORE', KEYS[7], id)[1]
  return ends and tonumber(ends) > now_ms()
end

-- Removes bans from the list.
local function drop_bans(ids)
  drop(ids)
  for _, id in ipairs(ids) do
    redis.call('ZREM', KEYS[9], id)
  end
end

-- Adds bans to the list. ARGV: the maximum number of bans, and for each ban its id, its end, 'watch' or 'enforce', and
-- its record. Of too many, the watched ones that end first are dropped, then the others that end first.
-- Replies the numbers of enforced and watched bans.
OPERATIONS.record_bans = function()
  local bans, watched, max = KEYS[7], KEYS[9], tonumber(ARGV[4])
  local now = now_ms()
  -- The others end with a later call, or with the keys.
  drop_bans(redis.call('ZRANGEBYSCORE', bans, '-inf', now, 'LIMIT', 0, 500))
  for i = 5, #ARGV, 4 do
    local id, ends = ARGV[i], ARGV[i + 1]
    if tonumber(ends) > now then
      redis.call('ZADD', bans, ends, id)
      redis.call('HSET', KEYS[8], id, ARGV[i + 3])
      if ARGV[i + 2] == 'watch' then
        redis.call('ZADD', watched, ends, id)
      else
        redis.call('ZREM', watched, id)
      end
    end
  end
  for _, key in ipairs({ watched, bans }) do
    local excess = redis.call('ZCARD', bans) - max
    if excess > 0 then
      drop_bans(redis.call('ZRANGE', key, 0, excess - 1))
    end
  end
  expire_with_last(9)
  local watching = redis.call('ZCOUNT', watched, '(' .. now, '+inf')
  return { redis.call('ZCOUNT', bans, '(' .. now, '+inf') - watching, watching }
end

-- Replies active bans, the latest end first: each one's id, end and record. ARGV: the end and the id of the ban after
-- which they follow, and the maximum number.
OPERATIONS.bans = function()
  local bans, now = KEYS[7], now_ms()
  -- Of those with the same end, the ones with lower ids.
  local first = redis.call('ZCOUNT', bans, '-inf', '(' .. ARGV[4])
  local last = first + redis.call('ZCOUNT', bans, ARGV[4], ARGV[4])
  while first < last do
    local middle = math.floor((first + last) / 2)
    if redis.call('ZRANGE', bans, middle, middle)[1] < ARGV[5] then
      first = middle + 1
    else
      last = middle
    end
  end
  last = last - 1
  if last < 0 then
    return {}
  end
  local found = redis.call('ZRANGE', bans, math.max(0, last - tonumber(ARGV[6]) + 1), last, 'WITHSCORES')
  local page = {}
  for i = #found - 1, 1, -2 do
    local id, ends = found[i], found[i + 1]
    if tonumber(ends) <= now then
      break
    end
    page[#page + 1] = { id, ends, redis.call('HGET', KEYS[8], id) }
  end
  return page
end

-- Replies the record of an active ban, if it is listed. ARGV: its id.
OPERATIONS.ban = function()
  return is_active(ARGV[4]) and redis.call('HGET', KEYS[8], ARGV[4])
end

-- Removes a ban from the list, and lets all instances request each ban again. ARGV: its id. Replies the number of removed ones.
OPERATIONS.remove_ban = function()
  local removed = redis.call('HDEL', KEYS[8], ARGV[4])
  drop_bans({ ARGV[4] })
  local lifts = redis.call('HINCRBY', head, 'lifts', 1)
  redis.pcall('PUBLISH', ARGV[2], lifts)
  return removed
end
