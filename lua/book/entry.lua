-- A book: records that operators, or the system for them, change at run time, and that instances share.
--   KEYS[1]   the head, a hash: `lineage`, which distinguishes the states of two stores; `revision`, the last revision; `epoch`,
--             the time when lost records were last restored; and `floor`, the revision of the last removal that is no longer
--             remembered. Of a copy of another region's also `source`, which names the state that it is a copy of
--   KEYS[2]   an audit log, a stream as in control/entry.lua
--   KEYS[3]   records by key, a hash
--   KEYS[4]   their revisions, a sorted set of keys; KEYS[5] the revisions of removals, a sorted set of keys; KEYS[6] the ends
--             in milliseconds since 1970 of those that have one, a sorted set of keys
--   KEYS[7]   the last revisions after each change, a sorted set: an instance whose revision is not among them holds changes that
--             the store has lost
--   KEYS[8…10] in `adopt`, what a whole copy has gathered of KEYS[3], KEYS[4] and KEYS[6]
--   ARGV      as in control/entry.lua: the operation, the channel, 'first' or 'again', and the arguments of the operation
-- Each change has a revision of its own: the server's time in microseconds since 1970, or one more than the last. So a
-- change made after data was lost has a later revision than all that was lost. All operations may run twice.

local head, audit, records, revisions, removals, ends, heads = unpack(KEYS, 1, 7)

local function now_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local function text(number)
  return string.format('%.0f', number)
end

local function last_revision()
  return tonumber(redis.call('HGET', head, 'revision') or '0')
end

-- Retained revisions.
local MAX_HEADS = 10000

-- Notes a revision that the store has had.
local function note_revision(revision)
  redis.call('ZADD', heads, text(revision), text(revision))
  redis.call('ZREMRANGEBYRANK', heads, 0, -MAX_HEADS - 1)
end

local function set_revision(revision)
  redis.call('HSET', head, 'revision', text(revision))
  note_revision(revision)
end

-- Drops a book of which a part was evicted, so that instances restore it.
local function drop_incomplete()
  if redis.call('HLEN', records) ~= redis.call('ZCARD', revisions) then
    redis.call('DEL', records, revisions, removals, ends, heads)
    redis.call('HDEL', head, 'lineage', 'revision', 'epoch', 'floor', 'source')
  end
end

-- Number of changes among which an earlier attempt of the same one may be.
local RECENT_CHANGES = 500

-- The operations by name, which the parts of the script add.
local OPERATIONS = {}
