-- Copies of the rule versions, lists and switches that another region writes; those of overrides are in
-- overrides/copies.lua. A copy replaces only the state that its caller has compared with the writing region's, so that of
-- two instances that copy at the same time, the slower one changes nothing.

-- Replies the current version's number and token, the generation of lists and switches, its token and trail, and the
-- fields of both hashes if that token is not the one in ARGV; and the lineage, revision and epoch of overrides, as in
-- overrides/entry.lua.
OPERATIONS.rules = function()
  local state = redis.call(
    'HMGET', head, 'current', 'token', 'generation', 'runtime_token', 'runtime_trail', 'override_lineage',
    'override_revision', 'override_epoch'
  )
  local all = { {}, {} }
  if (state[4] or '') ~= ARGV[4] then
    all = { redis.call('HGETALL', entries), redis.call('HGETALL', switches) }
  end
  return {
    state[1] or '0', state[2] or '', state[3] or '0', state[4] or '', state[5] or '', all[1], all[2], state[6] or '',
    state[7] or '0', state[8] or '0',
  }
end

-- Claims the next comparison for the caller. ARGV: the shortest time between two, in milliseconds.
-- Replies 1 if it is the caller's, else 0; the time; when the last comparison was; the tokens of the current version,
-- and of lists and switches; and the source and the revision of overrides.
OPERATIONS.claim_copy = function()
  local now = now_ms()
  local state = redis.call(
    'HMGET', head, 'copy_claim', 'copied', 'token', 'runtime_token', 'override_source', 'override_revision'
  )
  local age = now - tonumber(state[1] or '0')
  -- A claim of the future is from before a clock was set back.
  local is_claimed = age < 0 or age >= tonumber(ARGV[4])
  if is_claimed then
    redis.call('HSET', head, 'copy_claim', now)
  end
  return {
    is_claimed and 1 or 0, tostring(now), state[2] or '0', state[3] or '', state[4] or '', state[5] or '',
    state[6] or '0',
  }
end

-- Records a comparison. ARGV: when it began.
OPERATIONS.compared = function()
  redis.call('HSET', head, 'copied', ARGV[4])
  return 'made'
end

-- Creates KEYS[7] and makes it the current version, if the current one has a token. ARGV: that token, the token of the
-- copy, its number, `meta`, `trail`, `files`, and the audit log entry.
-- Replies 'made' and the lowest retained number and the total bytes, or 'other'.
OPERATIONS.copy_version = function()
  local state, number = redis.call('HMGET', head, 'token', 'oldest', 'bytes'), ARGV[6]
  if (state[1] or '') ~= ARGV[4] then
    return { 'other', '0', '0' }
  end
  local replaced = tonumber(redis.call('HGET', KEYS[7], 'size') or '0')
  make_current(number, ARGV[5], ARGV[7], ARGV[8], ARGV[9], true)
  local bytes = math.max(0, tonumber(state[3] or '0') - replaced) + #ARGV[9]
  redis.call('HSET', head, 'oldest', math.min(tonumber(state[2] or number), tonumber(number)), 'bytes', bytes)
  commit(ARGV[5], ARGV[10])
  return { 'made', unpack(retained()) }
end

-- Replaces lists and switches, if the present ones have a token. ARGV: the token, the generation, the trail, the audit log
-- entry, the token of the present ones, and for each field the index in KEYS of its hash, the field and its value. Replies
-- 'made' or 'other'.
OPERATIONS.copy_runtime = function()
  if (redis.call('HGET', head, 'runtime_token') or '') ~= ARGV[8] then
    return 'other'
  end
  redis.call('HDEL', head, 'runtime_confirmed')
  return replace_runtime()
end
