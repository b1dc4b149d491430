-- Copies of the rule versions that another region writes; book/copies.lua has copies of the records. A copy replaces only the
-- state that its caller has compared with the writing region's, so that of two instances that copy at the same time, the
-- slower one changes nothing.

-- Replies the current version's number and token; and the lineage, revision and epoch of the operators' book.
OPERATIONS.rules = function()
  local state = redis.call('HMGET', head, 'current', 'token')
  local of_book = redis.call('HMGET', book, 'lineage', 'revision', 'epoch')
  return { state[1] or '0', state[2] or '', of_book[1] or '', of_book[2] or '0', of_book[3] or '0' }
end

-- Claims the next comparison for the caller. ARGV: the shortest time between two, in milliseconds.
-- Replies 1 if it is the caller's, else 0; the time; when the last comparison was; the token of the current version; and the
-- source and the revision of the operators' book.
OPERATIONS.claim_copy = function()
  local now = now_ms()
  local state = redis.call('HMGET', head, 'copy_claim', 'copied', 'token')
  local of_book = redis.call('HMGET', book, 'source', 'revision')
  local age = now - tonumber(state[1] or '0')
  -- A claim of the future is from before a clock was set back.
  local is_claimed = age < 0 or age >= tonumber(ARGV[4])
  if is_claimed then
    redis.call('HSET', head, 'copy_claim', now)
  end
  return {
    is_claimed and 1 or 0, tostring(now), state[2] or '0', state[3] or '', of_book[1] or '', of_book[2] or '0',
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
