-- Lists and switches.

-- Makes a change of lists and switches the last one. `state` has the token and the trail of the one before.
local function change_runtime(token, state)
  redis.call('HINCRBY', head, 'generation', 1)
  redis.call('HDEL', head, 'runtime_confirmed')
  redis.call('HSET', head, 'runtime_token', token, 'runtime_trail', trail_after(state[1], state[2]))
end

-- Maximum size of all lists and switches, which calls read as a whole.
local MAX_LISTS_BYTES = 1048576

-- Removes expired entries, and returns the size of the others.
local function sweep(key, now)
  local all, size = redis.call('HGETALL', key), 0
  for i = 1, #all, 2 do
    local ends = tonumber(string.match(all[i + 1], '^%d+')) or 0
    if ends > 0 and ends <= now then
      redis.call('HDEL', key, all[i])
    else
      size = size + #all[i] + #all[i + 1]
    end
  end
  return size
end

-- Replies the generation, its token and trail, all list entries and all switches.
OPERATIONS.runtime = function()
  local state = redis.call('HMGET', head, 'generation', 'runtime_token', 'runtime_trail')
  local all = { redis.call('HVALS', entries), redis.call('HVALS', switches) }
  return { state[1] or '0', state[2] or '', state[3] or '', all[1], all[2] }
end

-- Changes lists or switches. ARGV: the token, the audit log entry, 'put', 'replace', 'remove' or 'note', the index in
-- KEYS of the hash to change, the field, its value, the maximum number of fields, 'some' from an instance that has seen
-- earlier changes, or 'none', and the value to replace.
-- Replies 'made', 'none' if there was nothing to remove or replace, 'full', 'large', or 'lost' if the earlier changes are lost.
OPERATIONS.change = function()
  local token, what, key, field = ARGV[4], ARGV[6], KEYS[tonumber(ARGV[7])], ARGV[8]
  if is_applied(token) then
    return 'made'
  end
  if what == 'note' then
    append_audit(token, ARGV[5])
    return 'made'
  end
  local state = redis.call('HMGET', head, 'runtime_token', 'runtime_trail')
  if not state[1] and ARGV[11] == 'some' then
    return 'lost'
  end
  local now = now_ms()
  local size = sweep(entries, now) + sweep(switches, now)
  if what == 'put' then
    local former = redis.call('HGET', key, field)
    if not former and redis.call('HLEN', key) >= tonumber(ARGV[10]) then
      return 'full'
    elseif size + (former and -#former or #field) + #ARGV[9] > MAX_LISTS_BYTES then
      return 'large'
    end
    redis.call('HSET', key, field, ARGV[9])
  elseif what == 'replace' then
    if redis.call('HGET', key, field) ~= ARGV[12] then
      return 'none'
    end
    redis.call('HSET', key, field, ARGV[9])
  elseif redis.call('HDEL', key, field) == 0 then
    return 'none'
  end
  change_runtime(token, state)
  commit(token, ARGV[5])
  return 'made'
end

-- Replaces all lists and switches. ARGV as below.
local function replace_runtime()
  redis.call('DEL', entries, switches)
  for i = 9, #ARGV, 3 do
    redis.call('HSET', KEYS[tonumber(ARGV[i])], ARGV[i + 1], ARGV[i + 2])
  end
  redis.call('HSET', head, 'generation', ARGV[5], 'runtime_token', ARGV[4], 'runtime_trail', ARGV[6])
  commit(ARGV[4], ARGV[7])
  return 'made'
end

-- Restores lost lists and switches. ARGV: the token, the generation, the trail, the audit log entry, 'steady' or
-- 'cut off' as for `put_back`, and for each field the index in KEYS of its hash, the field and its value.
-- Replies 'made', or 'other' if the present state stands, as for `put_back`.
OPERATIONS.put_runtime_back = function()
  local state = redis.call('HMGET', head, 'generation', 'runtime_token')
  if tonumber(state[1] or '0') >= tonumber(ARGV[5]) or not descends(ARGV[6], state[2]) then
    return 'other'
  end
  if ARGV[8] == 'cut off' and state[2] and is_confirmed('runtime_confirmed') then
    return 'other'
  end
  return replace_runtime()
end
