-- Records and the removals that are remembered.

-- Retained removals, and the number of ended records that one change removes at most.
local MAX_REMOVALS, MAX_SWEPT = 10000, 200

-- The keys of a set of records: those that decide, and what a whole copy has gathered, which remembers no removals.
local ACTIVE = { records = records, revisions = revisions, ends = ends, removals = removals }
local GATHERED = { records = KEYS[8], revisions = KEYS[9], ends = KEYS[10] }

local function drop(set, id)
  redis.call('HDEL', set.records, id)
  redis.call('ZREM', set.revisions, id)
  redis.call('ZREM', set.ends, id)
end

-- Applies a change to a set: a record with its end or '0', or a removal, whose payload is ''.
local function apply(set, id, revision, ends_at, payload)
  if payload == '' then
    drop(set, id)
  else
    redis.call('HSET', set.records, id, payload)
    redis.call('ZADD', set.revisions, revision, id)
    if ends_at == '0' then
      redis.call('ZREM', set.ends, id)
    else
      redis.call('ZADD', set.ends, ends_at, id)
    end
  end
  if set.removals and payload == '' then
    redis.call('ZADD', set.removals, revision, id)
  elseif set.removals then
    redis.call('ZREM', set.removals, id)
  end
end

-- Forgets the oldest removals if there are too many.
local function trim()
  local excess = redis.call('ZCARD', removals) - MAX_REMOVALS
  if excess > 0 then
    local last = redis.call('ZRANGE', removals, excess - 1, excess - 1, 'WITHSCORES')
    local floor = tonumber(redis.call('HGET', head, 'floor') or '0')
    redis.call('HSET', head, 'floor', text(math.max(floor, tonumber(last[2]))))
    redis.call('ZREMRANGEBYRANK', removals, 0, excess - 1)
  end
end

-- Removes a record that has ended. The removal has its revision, so that what it had replaced never returns.
local function finish(id)
  local revision = redis.call('ZMSCORE', revisions, id)[1]
  if revision then
    apply(ACTIVE, id, revision, '0', '')
  else
    -- The rest was evicted.
    drop(ACTIVE, id)
  end
end

-- Removes some that have ended. Instances drop these by themselves.
local function sweep(now)
  local ended = redis.call('ZRANGEBYSCORE', ends, '-inf', text(now / 1000), 'LIMIT', 0, MAX_SWEPT)
  for _, id in ipairs(ended) do
    finish(id)
  end
end
