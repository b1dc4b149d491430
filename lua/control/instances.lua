-- Heartbeats of instances.

-- Records a heartbeat. ARGV: the instance's id, its record, the number and the token of the version that it
-- enforces, which is KEYS[7], or '' for none, and the token of its lists and switches. Replies the current
-- version's number and token, or nothing; whether its files exist, or nothing if it is not KEYS[7]; the generation
-- and its token; the size of the current version; the token of the automatic entries; and the lineage,
-- the revision, the epoch and the floor of the overrides (see overrides/entry.lua).
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
  local state = redis.call(
    'HMGET', head, 'current', 'token', 'generation', 'runtime_token', 'size', 'automatic_token', 'override_lineage',
    'override_revision', 'override_epoch', 'override_floor'
  )
  local is_whole = false
  if state[1] and state[1] == ARGV[6] and state[2] == ARGV[7] then
    redis.call('HSET', head, 'confirmed', now)
    is_whole = redis.call('HEXISTS', KEYS[7], 'files')
  end
  if state[4] and state[4] == ARGV[8] then
    redis.call('HSET', head, 'runtime_confirmed', now)
  end
  return {
    state[1], state[2], is_whole, state[3] or '0', state[4] or '', state[5] or '0', state[6] or '', state[7] or '',
    state[8] or '0', state[9] or '0', state[10] or '0',
  }
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
