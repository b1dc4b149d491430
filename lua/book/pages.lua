-- Pages of changes, for instances and for other regions.

-- Size of a page after which no further change is added, and payloads that are read at once.
local MAX_PAGE_BYTES, PAYLOADS_OF_READ = 262144, 16

-- Adds the first changes after a revision to a reply, in their order: for each its revision, its id, and the payload, or ''
-- of a removal.
local function add_changes(reply, revision, count)
  local from = '(' .. revision
  local kept = redis.call('ZRANGEBYSCORE', revisions, from, '+inf', 'WITHSCORES', 'LIMIT', 0, count)
  local removed = redis.call('ZRANGEBYSCORE', removals, from, '+inf', 'WITHSCORES', 'LIMIT', 0, count)
  local ids, payloads, bytes = {}, {}, 0
  for at = 1, #kept, 2 do
    ids[#ids + 1] = kept[at]
  end
  local function payload_of(index)
    if payloads[index] == nil then
      local last = math.min(index + PAYLOADS_OF_READ - 1, #ids)
      for at, payload in ipairs(redis.call('HMGET', records, unpack(ids, index, last))) do
        payloads[index + at - 1] = payload
      end
    end
    bytes = bytes + #payloads[index]
    return payloads[index]
  end
  local k, r = 1, 1
  for _ = 1, tonumber(count) do
    if bytes > MAX_PAGE_BYTES then
      break
    end
    local next_kept, next_removed = tonumber(kept[k + 1]), tonumber(removed[r + 1])
    local size = #reply
    if next_kept and (not next_removed or next_kept < next_removed) then
      reply[size + 1], reply[size + 2], reply[size + 3] = text(next_kept), kept[k], payload_of((k + 1) / 2)
      k = k + 2
    elseif next_removed then
      reply[size + 1], reply[size + 2], reply[size + 3] = text(next_removed), removed[r], ''
      r = r + 2
    else
      break
    end
  end
  return reply
end

-- The last revision that an instance and the store have in common, if the instance holds changes that the store has lost: then
-- its revision is not one that the store had. Of an instance that lacks more changes than the store remembers, it is not known.
local function common_revision(revision)
  if revision == '0' or redis.call('ZMSCORE', heads, revision)[1] then
    return nil
  end
  local before = redis.call('ZRANGE', heads, revision, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1)[1]
  return before or redis.call('ZCARD', heads) < MAX_HEADS and '0' or nil
end

-- Replies the revision and the payload of the record with the key in ARGV, '' for none.
OPERATIONS.get = function()
  drop_incomplete()
  local revision = redis.call('ZMSCORE', revisions, ARGV[4])[1]
  return revision and { text(tonumber(revision)), redis.call('HGET', records, ARGV[4]) } or { '', '' }
end

-- Replies the head, '' or the common revision as above, and the first changes after a revision.
-- ARGV: that revision, the maximum number of changes, and 'head' if the revision is that of an instance, or 'page'.
OPERATIONS.since = function()
  drop_incomplete()
  local state = redis.call('HMGET', head, 'lineage', 'revision', 'epoch', 'floor')
  local common = ARGV[6] == 'head' and common_revision(ARGV[4])
  local reply = { state[1] or '', state[2] or '0', state[3] or '0', state[4] or '0', common or '' }
  return common and reply or add_changes(reply, ARGV[4], ARGV[5])
end

-- Replies the same to another region, with 'part' for the changes after a revision of its copy, or 'whole' if the copy
-- has to begin anew, also because it has changes that this store has lost: then for all changes. ARGV: the lineage, the
-- revision and the epoch of which it is a copy, 'first', or 'next' for a further page, and the maximum number of changes.
OPERATIONS.read = function()
  drop_incomplete()
  local state = redis.call('HMGET', head, 'lineage', 'revision', 'epoch', 'floor')
  local lineage, epoch, from = state[1] or '', state[3] or '0', tonumber(ARGV[5])
  local is_copy = ARGV[4] == lineage and ARGV[6] == epoch and from <= tonumber(state[2] or '0')
  local is_complete = from >= tonumber(state[4] or '0') and not common_revision(ARGV[5])
  local is_part = is_copy and (ARGV[7] == 'next' or is_complete)
  local reply = { lineage, state[2] or '0', epoch, is_part and 'part' or 'whole' }
  return add_changes(reply, is_part and ARGV[5] or '0', ARGV[8])
end
