-- Copies of another region's records.

-- Time after which what a copy has gathered expires, in milliseconds: longer than the minute after which another one begins.
local MAX_GATHERED_MS = 600000

-- Copies the changes of ARGV and the last revision of another region, unless an instance that was faster has made them.
-- Returns false if changes before these are lost.
local function adopt_part(revision)
  local last = last_revision()
  if last < tonumber(ARGV[10]) then
    return false
  end
  for i = 11, #ARGV, 4 do
    if tonumber(ARGV[i]) > last then
      apply(ACTIVE, ARGV[i + 1], ARGV[i], ARGV[i + 2], ARGV[i + 3])
    end
  end
  sweep(now_us())
  trim()
  redis.call('HSET', head, 'source', ARGV[7])
  if tonumber(revision) > last then
    set_revision(tonumber(revision))
    commit(ARGV[4], ARGV[5])
  end
  return true
end

-- Gathers the changes of ARGV for a whole copy.
local function gather()
  for i = 11, #ARGV, 4 do
    apply(GATHERED, ARGV[i + 1], ARGV[i], ARGV[i + 2], ARGV[i + 3])
  end
  -- A key that is renamed keeps its expiry, so without permission to remove it none is set.
  if type(redis.pcall('PERSIST', KEYS[8])) == 'number' then
    for key = 8, 10 do
      redis.call('PEXPIRE', KEYS[key], MAX_GATHERED_MS)
    end
  end
end

-- Whether all records of a whole copy, and the ends of those that have one, are still there.
local function is_complete(count, ending)
  local gathered = { redis.call('HLEN', KEYS[8]), redis.call('ZCARD', KEYS[9]), redis.call('ZCARD', KEYS[10]) }
  return gathered[1] == count and gathered[2] == count and gathered[3] == ending
end

-- Deletes a key. Its memory is freed in the background, unless an ACL forbids that: of 200,000 records this takes some tenths
-- of a second, in which the server decides no limits.
local function free(key)
  if type(redis.pcall('UNLINK', key)) == 'table' then
    redis.call('DEL', key)
  end
end

-- Replaces a set by what a whole copy gathered of it.
local function replace(live, gathered, size)
  free(live)
  if size > 0 then
    redis.pcall('PERSIST', gathered)
    redis.call('RENAME', gathered, live)
  end
end

-- Copies changes of another region. ARGV: the token, the audit log entry, the source that the copy has, the one that it has
-- afterwards, the last revision afterwards, and 'part' for further changes of the same source, or one step of a whole
-- copy: 'begin', 'more', 'end', at which it replaces what there is, or 'release' of one that has failed. Then for 'part'
-- the revision after which the changes are; for 'end' a lineage, the number of records, and the number of those with an
-- end; else ''. For 'part' and 'more' follow of each change its revision, its id, its end or '0', and its payload, or ''
-- of a removal. Replies 'made', 'other' if the copy has another source or a lower revision, or 'lacking' if not all of a
-- whole copy is there.
OPERATIONS.adopt = function()
  local step, source = ARGV[9], redis.call('HGET', head, 'source') or ''
  if source ~= ARGV[6] then
    -- An earlier attempt may have made the step.
    return ARGV[3] == 'again' and source == ARGV[7] and 'made' or 'other'
  end
  if step == 'part' then
    return adopt_part(ARGV[8]) and 'made' or 'other'
  end
  if step == 'begin' or step == 'release' then
    for key = 8, 10 do
      free(KEYS[key])
    end
  elseif step == 'more' then
    gather()
  else
    if not is_complete(tonumber(ARGV[11]), tonumber(ARGV[12])) then
      return 'lacking'
    end
    local size = redis.call('HLEN', KEYS[8])
    if size > 0 then
      -- Changes nothing. An ACL may forbid it, before there is any change.
      redis.call('RENAME', KEYS[8], KEYS[8])
    end
    replace(records, KEYS[8], size)
    replace(revisions, KEYS[9], redis.call('ZCARD', KEYS[9]))
    replace(ends, KEYS[10], redis.call('ZCARD', KEYS[10]))
    -- The copy has no removals: earlier ones than its revision are forgotten.
    redis.call('DEL', removals, heads)
    redis.call('HSET', head, 'floor', ARGV[8])
    redis.call('HSET', head, 'lineage', ARGV[10], 'epoch', text(now_us()))
    set_revision(tonumber(ARGV[8]))
    commit(ARGV[4], ARGV[5])
  end
  redis.call('HSET', head, 'source', ARGV[7])
  return 'made'
end
