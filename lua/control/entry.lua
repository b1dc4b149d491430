-- Control-plane state shared by all instances: rule versions, the audit log, heartbeats, the list of active bans, and copies
-- for other regions; book/entry.lua has the records that operators change.
--   KEYS[1]   the head, a hash. Of versions: `current` (a number), its `token`, `meta`, `size` and `trail`; `confirmed`,
--             when an instance last reported that it enforces that version; `oldest`, the lowest retained number, and
--             `bytes`, the total size of the files of all versions. Of bans: `lifts`, the number of those that were lifted. Of
--             copies: `copied`, when this region last compared itself with the writing region, and `copy_claim`, when an
--             instance last began to; both by the server's clock in milliseconds since 1970
--   KEYS[2]   the audit log, a stream whose entries have a `token` and an `entry`
--   KEYS[3]   the heartbeat records of instances, a hash by instance id; KEYS[4] the time of the last heartbeat of each,
--             by the server's clock in milliseconds since 1970
--   KEYS[5]   the heads of the operators' book, and KEYS[6] of the system's; see book/entry.lua
--   KEYS[7…]  versions, depending on the operation: hashes with `meta`, `token`, `trail`, `files` and `size`, the bytes of
--             the files. In operations on bans, KEYS[7] is the list of active bans, a sorted set of ids by their ends in
--             milliseconds since 1970; KEYS[8] their records, a hash by id; and KEYS[9] the watched ones of the list. In
--             `region_tables`, KEYS[7] is a record of the region, a string: of its tables, or of the primary region
--   ARGV[1]   the operation; each operation documents the arguments after ARGV[3]
--   ARGV[2]   the channel on which changes are published
--   ARGV[3]   'first', or 'again' if an earlier attempt may have run
-- A token identifies one change: a change that was applied before is not applied again, and its result is repeated.
-- A trail lists the tokens of the preceding changes, newest first. A lost version is restored only over one that it descends
-- from, or over nothing: otherwise an operator has continued from the remaining one, which then stands.

local head, audit, instances, seen, book, system_book = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]

-- Time for which an instance counts as present after its last heartbeat, in milliseconds, and the length of a trail in
-- characters: 100 tokens.
local PRESENCE_MS, MAX_TRAIL_CHARS = 30000, 3300

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- The trail of a change made after `token`, which had this `trail`; both may be missing.
local function trail_after(token, trail)
  return token and string.sub(token .. ' ' .. (trail or ''), 1, MAX_TRAIL_CHARS) or ''
end

-- Whether a state with this trail descends from `token`, or there is nothing to descend from.
local function descends(trail, token)
  return not token or string.find(trail, token, 1, true) ~= nil
end

-- Whether an instance has recently confirmed that it enforces the current state.
local function is_confirmed(field)
  local confirmed = tonumber(redis.call('HGET', head, field) or '0')
  return now_ms() - confirmed < PRESENCE_MS
end

-- Number of changes among which an earlier attempt of the same one may be.
local RECENT_CHANGES = 2000

-- The operations by name, which the parts of the script add.
local OPERATIONS = {}
