-- Restoration of records that the store has lost, or that were set over another store.

-- Restores changes, each unless the store has the same or a later one. ARGV: the token, the audit log entry, the lineage, the
-- last revision of the instance, 'more' or 'last' for a part of them, the revision after which they are, 'first' or 'next'
-- for a further part, and for each change its revision, its id, its end or '0', and its payload, or '' of a removal. Replies
-- 'made', 'kept' after the last part if the store lacked nothing, 'other' if it has another lineage and is a copy of another
-- region's, or 'lost' if it has lost meanwhile what comes before these changes.
OPERATIONS.restore = function()
  drop_incomplete()
  local state = redis.call('HMGET', head, 'lineage', 'source')
  if last_revision() < tonumber(ARGV[9]) or ARGV[10] == 'next' and not state[1] then
    return 'lost'
  end
  local lineage = state[1] or ARGV[6]
  if lineage ~= ARGV[6] and state[2] then
    return 'other'
  end
  redis.call('HSET', head, 'lineage', lineage)
  local restored, floor = 0, tonumber(redis.call('HGET', head, 'floor') or '0')
  for i = 11, #ARGV, 4 do
    local revision, id = tonumber(ARGV[i]), ARGV[i + 1]
    local known = redis.call('ZMSCORE', revisions, id)[1] or redis.call('ZMSCORE', removals, id)[1]
    local is_forgotten = not known and ARGV[i + 3] == '' and revision <= floor
    if not is_forgotten and (not known or tonumber(known) < revision) then
      restored = restored + 1
      apply(ACTIVE, id, ARGV[i], ARGV[i + 2], ARGV[i + 3])
    end
  end
  trim()
  if restored > 0 then
    diverge()
    redis.call('HINCRBY', head, 'restored', restored)
    -- Instances may be past the revisions that were restored, so they fetch all again, also if the last part is never made.
    redis.call('HSET', head, 'epoch', text(math.max(last_revision() + 1, now_us())))
  end
  if ARGV[8] == 'more' then
    -- Also if the last part is never made: what is stored is at most of this revision, and so are forgotten removals.
    set_revision(math.max(last_revision(), tonumber(ARGV[#ARGV - 3])))
  else
    local last = math.max(last_revision(), tonumber(ARGV[7]))
    -- The store has what instances of that revision have.
    note_revision(tonumber(ARGV[7]))
    if redis.call('HDEL', head, 'restored') == 0 then
      set_revision(last)
      return 'kept'
    end
    -- A revision of its own distinguishes the state from the one before, to which a failover may lead.
    last = math.max(last + 1, now_us())
    redis.call('HSET', head, 'epoch', text(last))
    commit(ARGV[4], ARGV[5])
    set_revision(last)
  end
  return 'made'
end
