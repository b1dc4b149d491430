-- Overrides and the removals that are remembered.

-- Retained removals, and the number of ended overrides that one change removes at most.
local MAX_REMOVALS, MAX_SWEPT = 10000, 200

local function drop(id)
  redis.call('HDEL', overrides, id)
  redis.call('ZREM', revisions, id)
  redis.call('ZREM', ends, id)
end

local function put(id, revision, ends_at, payload)
  redis.call('HSET', overrides, id, payload)
  redis.call('ZADD', revisions, text(revision), id)
  redis.call('ZREM', removals, id)
  if ends_at == '0' then
    redis.call('ZREM', ends, id)
  else
    redis.call('ZADD', ends, ends_at, id)
  end
end

local function remove(id, revision)
  drop(id)
  redis.call('ZADD', removals, text(revision), id)
end

-- Applies a change that was made before: an override with its end or '0', or a removal, whose payload is ''.
local function apply(id, revision, ends_at, payload)
  if payload == '' then
    remove(id, revision)
  else
    put(id, revision, ends_at, payload)
  end
end

-- Forgets the oldest removals if there are too many.
local function trim()
  local excess = redis.call('ZCARD', removals) - MAX_REMOVALS
  if excess > 0 then
    local last = redis.call('ZRANGE', removals, excess - 1, excess - 1, 'WITHSCORES')
    local floor = tonumber(redis.call('HGET', head, 'override_floor') or '0')
    redis.call('HSET', head, 'override_floor', text(math.max(floor, tonumber(last[2]))))
    redis.call('ZREMRANGEBYRANK', removals, 0, excess - 1)
  end
end

-- Removes some that have ended. Instances drop these by themselves.
local function sweep(now)
  local ended = redis.call('ZRANGEBYSCORE', ends, '-inf', text(now / 1000), 'LIMIT', 0, MAX_SWEPT)
  for _, id in ipairs(ended) do
    drop(id)
  end
end
