-- Changes of operators.

-- Whether earlier changes are lost, of which the instance has some. If there were none, this is a new lineage.
local function is_lost(known, lineage)
  if redis.call('HGET', head, 'override_lineage') then
    return false
  end
  if known == 'some' then
    return true
  end
  redis.call('HSET', head, 'override_lineage', lineage)
  return false
end

-- Ends a copy of another region's overrides: the next one begins anew.
local function diverge()
  redis.call('HDEL', head, 'override_source')
end

-- Makes a change of an operator, unless it was already applied. known, lineage: as of is_lost. make gets the next revision and
-- the time, and returns the last revision of the change, or nil and the reply to a change that it refuses.
local function change(known, lineage, make)
  local token, last = ARGV[4], last_revision()
  if is_applied(token) then
    return { 'made', text(last) }
  end
  if is_lost(known, lineage) then
    return { 'lost' }
  end
  local now = now_us()
  local revision, refusal = make(math.max(last + 1, now), now)
  if not revision then
    return { refusal }
  end
  redis.call('HSET', head, 'override_revision', text(revision))
  diverge()
  commit(token, ARGV[5])
  return { 'made', text(revision) }
end

-- Puts overrides. ARGV: the token, the audit log entry, the maximum number of overrides, 'some' from an instance that has
-- earlier changes or 'none', the lineage to begin, and for each its id, its end or '0', and its payload.
-- Replies 'made' and the last revision, or 'full' or 'lost'.
OPERATIONS.put = function()
  return change(ARGV[7], ARGV[8], function(revision, now)
    sweep(now)
    local added = 0
    for i = 9, #ARGV, 3 do
      added = added + 1 - redis.call('HEXISTS', overrides, ARGV[i])
    end
    if added > 0 and redis.call('HLEN', overrides) + added > tonumber(ARGV[6]) then
      return nil, 'full'
    end
    for i = 9, #ARGV, 3 do
      apply(ACTIVE, ARGV[i], text(revision + (i - 9) / 3), ARGV[i + 1], ARGV[i + 2])
    end
    return revision + (#ARGV - 11) / 3
  end)
end

-- Removes an override. ARGV: the token, the audit log entry, 'some' or 'none' and a lineage as above, and the id.
-- Replies 'made' and the last revision, or 'none' or 'lost'.
OPERATIONS.remove = function()
  return change(ARGV[6], ARGV[7], function(revision, now)
    if redis.call('HEXISTS', overrides, ARGV[8]) == 0 then
      return nil, 'none'
    end
    sweep(now)
    apply(ACTIVE, ARGV[8], text(revision), '0', '')
    trim()
    return revision
  end)
end
