-- Versions of the rules.

-- Creates KEYS[7] and makes it the current version. Counts its bytes, unless `is_counted`.
local function make_current(number, token, meta, trail, files, is_counted)
  local size = string.len(files)
  redis.call('DEL', KEYS[7])
  redis.call('HSET', KEYS[7], 'meta', meta, 'token', token, 'trail', trail, 'files', files, 'size', size)
  redis.call('HSET', head, 'current', number, 'token', token, 'meta', meta, 'trail', trail, 'size', size)
  redis.call('HDEL', head, 'confirmed')
  if not is_counted then
    redis.call('HINCRBY', head, 'bytes', size)
  end
end

-- The lowest retained version number, and the total bytes.
local function retained()
  local state = redis.call('HMGET', head, 'oldest', 'bytes')
  return { state[1] or '1', state[2] or '0' }
end

-- Replies the number of the current version, if any.
OPERATIONS.current = function()
  return redis.call('HGET', head, 'current')
end

-- Replies the `meta` of each of KEYS[7…].
OPERATIONS.versions = function()
  local metas = {}
  for i = 7, #KEYS do
    metas[i - 6] = redis.call('HGET', KEYS[i], 'meta')
  end
  return metas
end

-- Creates KEYS[7] and makes it the current version. ARGV: the token, the number of the version that must be current
-- or '' for none, its own number, `meta`, `files`, and the audit log entry.
-- Replies 'made' and the retained range, or the reason why not, with the current version's `meta` for 'stale'.
OPERATIONS.apply = function()
  local token, based_on = ARGV[4], ARGV[5]
  if redis.call('HGET', KEYS[7], 'token') ~= token then
    local state = redis.call('HMGET', head, 'current', 'meta', 'token', 'trail')
    if (state[1] or '') ~= based_on then
      return { state[1] and 'stale' or 'lost', state[2] }
    end
    make_current(ARGV[6], token, ARGV[7], trail_after(state[3], state[4]), ARGV[8])
    commit(token, ARGV[9])
  end
  return { 'made', unpack(retained()) }
end

-- Deletes KEYS[7…], oldest first, until the rest fit. ARGV: the number of the first of them, the lowest number that
-- may be retained, and the maximum total bytes. Replies the retained range afterwards.
OPERATIONS.trim = function()
  local current = tonumber(redis.call('HGET', head, 'current') or '0')
  local oldest, bytes = unpack(retained())
  if oldest ~= ARGV[4] then
    return { oldest, bytes }
  end
  oldest, bytes = tonumber(oldest), tonumber(bytes)
  for i = 7, #KEYS do
    if oldest >= current or oldest >= tonumber(ARGV[5]) and bytes <= tonumber(ARGV[6]) then
      break
    end
    bytes = math.max(0, bytes - tonumber(redis.call('HGET', KEYS[i], 'size') or '0'))
    redis.call('DEL', KEYS[i])
    oldest = oldest + 1
  end
  redis.call('HSET', head, 'oldest', oldest, 'bytes', bytes)
  return { tostring(oldest), tostring(bytes) }
end

-- Restores KEYS[7], which was lost, as the current version. ARGV: the token, the number, `meta`, `trail`, `files`,
-- the audit log entry, the lowest number that may be retained, and 'steady', or 'cut off' from an instance that was
-- disconnected.
-- Replies 'made'; 'kept' if nothing is lost; or 'other' if the current version stands: it is newer, or was made
-- from the remaining state, or was confirmed while the instance was disconnected.
OPERATIONS.put_back = function()
  local token, number = ARGV[4], tonumber(ARGV[5])
  local state = redis.call('HMGET', head, 'current', 'token')
  local current = tonumber(state[1] or '0')
  local is_same = current == number and state[2] == token
  if is_same then
    if redis.call('HGET', KEYS[7], 'token') == token and redis.call('HEXISTS', KEYS[7], 'files') == 1 then
      return 'kept'
    end
  elseif current >= number or not descends(ARGV[7], state[2]) then
    return 'other'
  elseif ARGV[11] == 'cut off' and state[1] and is_confirmed('confirmed') then
    return 'other'
  end
  make_current(ARGV[5], token, ARGV[6], ARGV[7], ARGV[8], is_same)
  if not redis.call('HGET', head, 'oldest') then
    redis.call('HSET', head, 'oldest', ARGV[10])
  end
  commit(token, ARGV[9])
  return 'made'
end
