-- Heartbeats of instances.

-- Records a heartbeat. ARGV: the instance's id, its record, and the number and the token of the version that it enforces,
-- which is KEYS[7], or '' for none. Replies the current version's number and token, or nothing; whether its files exist, or
-- nothing if it is not KEYS[7]; the size of the current version; the number of lifted bans; and of the operators' book and of
-- the system's the lineage, the revision, the epoch and the floor.
OPERATIONS.beat = function()
  local now = now_ms()
  redis.call('HSET', instances, ARGV[4], ARGV[5])
  redis.call('HSET', seen, ARGV[4], now)
  -- One heartbeat in eight removes the absent instances, on behalf of all.
  local all = now % 8 == 0 and redis.call('HGETALL', seen) or {}
  for i = 1, #all, 2 do
    if tonumber(all[i + 1]) < now - PRESENCE_MS then
      redis.call('HDEL', instances, all[i])
      redis.call('HDEL', seen, all[i])
    end
  end
  redis.call('PEXPIRE', instances, 2 * PRESENCE_MS)
  redis.call('PEXPIRE', seen, 2 * PRESENCE_MS)
  local state = redis.call('HMGET', head, 'current', 'token', 'size', 'lifts')
  local is_whole = false
  if state[1] and state[1] == ARGV[6] and state[2] == ARGV[7] then
    redis.call('HSET', head, 'confirmed', now)
    is_whole = redis.call('HEXISTS', KEYS[7], 'files')
  end
  local reply = { state[1], state[2], is_whole, state[3] or '0', state[4] or '0' }
  for at, key in ipairs({ book, system_book }) do
    local of_book = redis.call('HMGET', key, 'lineage', 'revision', 'epoch', 'floor')
    for i = 1, 4 do
      reply[1 + 4 * at + i] = of_book[i] or (i == 1 and '' or '0')
    end
  end
  return reply
end

-- Replies for each of the next present instances its id, the time of its last heartbeat and its record. ARGV: the id after
-- which they follow, and the maximum number.
OPERATIONS.instances = function()
  local now, ids, times, present = now_ms(), {}, {}, {}
  local all = redis.call('HGETALL', seen)
  for i = 1, #all, 2 do
    if all[i] > ARGV[4] and tonumber(all[i + 1]) >= now - PRESENCE_MS then
      ids[#ids + 1], times[all[i]] = all[i], all[i + 1]
    end
  end
  table.sort(ids)
  for _, id in ipairs(ids) do
    local record = #present < tonumber(ARGV[5]) and redis.call('HGET', instances, id)
    if record then
      present[#present + 1] = { id, times[id], record }
    end
  end
  return present
end
