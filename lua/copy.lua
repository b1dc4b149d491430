-- Copies of the rule versions, lists and switches that another region writes; those of overrides are in
-- overrides/copies.lua. The keys are those of control/entry.lua.
--   KEYS[1]   the head, a hash, which also has `copied`, when this region last compared itself with the writing region, and
--             `copy_claim`, when an instance last began to; both by the server's clock in milliseconds since 1970
--   KEYS[2]   the audit log; KEYS[3] the entries of lists, KEYS[4] the switches; KEYS[5] a version
--   ARGV[1]   the operation; each operation documents the arguments after ARGV[2]
--   ARGV[2]   the channel on which changes are published
-- A copy replaces only the state that its caller has compared with the writing region's, so that of two instances that
-- copy at the same time, the slower one changes nothing.

local head, audit, entries, switches = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- The number of retained audit entries.
local MAX_AUDIT_ENTRIES = 10000

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function commit(token, entry)
  redis.call('XADD', audit, 'MAXLEN', '=', MAX_AUDIT_ENTRIES, '*', 'token', token, 'entry', entry)
  -- An ACL may forbid publishing; subscribers then learn of the change by polling.
  redis.pcall('PUBLISH', ARGV[2], token)
end

local OPERATIONS = {
  -- Replies the current version's number and token, the generation of lists and switches, its token and trail, and the
  -- fields of both hashes if that token is not ARGV[3]; and the lineage, revision and epoch of overrides, as in
  -- overrides/entry.lua.
  read = function()
    local state = redis.call('HMGET', head, 'current', 'token', 'generation', 'runtime_token', 'runtime_trail')
    local of_overrides = redis.call('HMGET', head, 'override_lineage', 'override_revision', 'override_epoch')
    local all = { {}, {} }
    if (state[4] or '') ~= ARGV[3] then
      all = { redis.call('HGETALL', entries), redis.call('HGETALL', switches) }
    end
    local lineage, revision, epoch = of_overrides[1] or '', of_overrides[2] or '0', of_overrides[3] or '0'
    return {
      state[1] or '0', state[2] or '', state[3] or '0', state[4] or '', state[5] or '', all[1], all[2], lineage, revision,
      epoch,
    }
  end,

  -- Claims the next comparison for the caller. ARGV: the shortest time between two, in milliseconds.
  -- Replies 1 if it is the caller's, else 0; the time; when the last comparison was; the tokens of the current version,
  -- and of lists and switches; and the source and the revision of overrides.
  claim = function()
    local now = now_ms()
    local state = redis.call('HMGET', head, 'copy_claim', 'copied', 'token', 'runtime_token')
    local of_overrides = redis.call('HMGET', head, 'override_source', 'override_revision')
    local age = now - tonumber(state[1] or '0')
    -- A claim of the future is from before a clock was set back.
    local is_claimed = age < 0 or age >= tonumber(ARGV[3])
    if is_claimed then
      redis.call('HSET', head, 'copy_claim', now)
    end
    local source, revision = of_overrides[1] or '', of_overrides[2] or '0'
    return { is_claimed and 1 or 0, tostring(now), state[2] or '0', state[3] or '', state[4] or '', source, revision }
  end,

  -- Records a comparison. ARGV: when it began.
  compared = function()
    redis.call('HSET', head, 'copied', ARGV[3])
    return 'made'
  end,

  -- Creates KEYS[5] and makes it the current version, if the current one has the token ARGV[3]. ARGV: the token, the
  -- number, `meta`, `trail`, `files`, and the audit log entry.
  -- Replies 'made' and the lowest retained number and the total bytes, or 'other'.
  version = function()
    local token, number, files = ARGV[4], ARGV[5], ARGV[8]
    local state = redis.call('HMGET', head, 'token', 'oldest', 'bytes')
    if (state[1] or '') ~= ARGV[3] then
      return { 'other', '0', '0' }
    end
    local replaced = tonumber(redis.call('HGET', KEYS[5], 'size') or '0')
    local size = string.len(files)
    local bytes = math.max(0, tonumber(state[3] or '0') - replaced) + size
    local oldest = math.min(tonumber(state[2] or number), tonumber(number))
    redis.call('DEL', KEYS[5])
    redis.call('HSET', KEYS[5], 'meta', ARGV[6], 'token', token, 'trail', ARGV[7], 'files', files, 'size', size)
    redis.call('HSET', head, 'current', number, 'token', token, 'meta', ARGV[6], 'trail', ARGV[7], 'size', size)
    redis.call('HSET', head, 'oldest', oldest, 'bytes', bytes)
    redis.call('HDEL', head, 'confirmed')
    commit(token, ARGV[9])
    return { 'made', tostring(oldest), tostring(bytes) }
  end,

  -- Replaces lists and switches, if the present ones have the token ARGV[3]. ARGV: the token, the generation, the trail,
  -- the audit log entry, and for each field the index in KEYS of its hash, the field and its value. Replies 'made' or
  -- 'other'.
  lists = function()
    if (redis.call('HGET', head, 'runtime_token') or '') ~= ARGV[3] then
      return 'other'
    end
    redis.call('DEL', entries, switches)
    for i = 8, #ARGV, 3 do
      redis.call('HSET', KEYS[tonumber(ARGV[i])], ARGV[i + 1], ARGV[i + 2])
    end
    redis.call('HSET', head, 'runtime_token', ARGV[4], 'generation', ARGV[5], 'runtime_trail', ARGV[6])
    redis.call('HDEL', head, 'runtime_confirmed')
    commit(ARGV[4], ARGV[7])
    return 'made'
  end,
}

return OPERATIONS[ARGV[1]]()
