-- Overrides of rules, which instances share.
--   KEYS[1]   the head of the control plane, a hash. Of overrides: `override_lineage`, which distinguishes the states of two
--             stores; `override_revision`, the last revision; `override_epoch`, the time when lost overrides were last
--             restored; and `override_floor`, the revision of the last removal that is no longer remembered. Of a copy of
--             another region's also `override_source`, which names the state that it is a copy of
--   KEYS[2]   the audit log of overrides, a stream as in control/entry.lua
--   KEYS[3]   overrides by id, a hash
--   KEYS[4]   their revisions, a sorted set of ids; KEYS[5] the revisions of removals, a sorted set of ids; KEYS[6] the ends
--             in milliseconds since 1970 of those that have one, a sorted set of ids
--   KEYS[7…9] in `adopt`, what a whole copy has gathered of KEYS[3], KEYS[4] and KEYS[6]
--   ARGV      as in control/entry.lua: the operation, the channel, 'first' or 'again', and the arguments of the operation
-- Each change has a revision of its own: the server's time in microseconds since 1970, or one more than the last. So a
-- change made after data was lost has a later revision than all that was lost. All operations may run twice.

local head, audit, overrides, revisions, removals, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]

local function now_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local function text(number)
  return string.format('%.0f', number)
end

local function last_revision()
  return tonumber(redis.call('HGET', head, 'override_revision') or '0')
end

-- Number of changes among which an earlier attempt of the same one may be.
local RECENT_CHANGES = 500

-- The operations by name, which the parts of the script add.
local OPERATIONS = {}
