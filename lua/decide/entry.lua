-- Decides rate-limit requests: one or several calls, each in one atomic step.
--
-- To follow a usual decision, on the only counter of a key or on all of them, read this page and whole_cells.lua, where the
-- script then ends. To follow any other, read fixed_window.lua (an algorithm), decide.lua (`decide_call`: any call),
-- record_checks.lua (`decide_record`: one check) and packed_records.lua (how a counter is stored). These can decide every call
-- on counters with packed records. The parts before them decide some calls with less work, each with its gain in its head:
-- whole_cells.lua, fast_path.lua with dispatch.lua, single_budget.lua, and bans.lua.
--
-- Names in capitals with a prefix such as ROLE_ are numbers. The program replaces them before it loads the script:
-- crates/store/src/redis/script/mod.rs has them with their meanings, and docs/internals/redis-protocol-and-lua.md as a table.
--
--   KEYS[i]      a cell of packed records, a queue of hits, or a budget; the keys of a call are consecutive. In commands across
--                slots, they are the last arguments, see across_slots.lua
--   ARGV[1]      the time in microseconds since the epoch, or '' for the server's own clock
--   ARGV[1 + i]  the checks of key i, packed little endian:
--
--   | part | bytes | content |
--   |---|---|---|
--   | call    | 2  | number of keys of the call that begins with this key; 0 for a further key of the same call |
--   |         | 2  | number of times that the call is repeated |
--   | check,  | 6  | id of the record; its kind is the lower 4 bits of the last byte |
--   | once or | 1  | role, see below |
--   | more    | 8  | hits, a double: above 0 to charge, 0 to check, below 0 to refund |
--   |         | 16 | two parameters of the algorithm, doubles; its file defines them |
--   |         | 8  | extra: zeros; of a refund of one charge its time in microseconds since the epoch, a double; of a charge of |
--   |         |    | packed records a reservation; of a role with ROLE_OVERDRAWS or ROLE_HAS_BOUND the maximum that a charge |
--   |         |    | in full leaves, a double; for queues and budgets see the file of the algorithm |
--   | ban, of each check with    | 4  | threshold and interval, 2 bytes each; times are in seconds |
--   | ROLE_HAS_BAN, in the order | 16 | duration, maximum duration, time until it is forgiven, hits that count as one; 4 each |
--   | of the checks              | 2  | hits that were denied without a call since the last one |
--   |                            | 2  | maximum level; effect: BAN_WATCH, BAN_ENFORCE, BAN_LIFT or BAN_FORGIVE |
--   | share, of each check of a  | 2  | number of the check, from 0 |
--   | counter that regions share | 8  | hits of the region's share, and of the whole limit; 4 each |
--   |                            | 8  | ticks in which a bucket of the whole limit is filled by as many hits, a double |
--   | end, with   | 2 | number of shares, if there are any |
--   | one of them | 2 | number of bans; HAS_SHARES is added if there are shares |
--
--   A role says what a denial means for the other checks of the call. ROLE_INDEPENDENT and ROLE_PASSING_ONLY, for all checks of
--   a call, charge each counter by itself. Otherwise all charges of the call are made or none, and ROLE_VETO, ROLE_NO_VETO,
--   ROLE_QUOTA, ROLE_ALWAYS_VETO or ROLE_VETO_COUNTED say which denials keep the others from being charged. The larger numbers,
--   from ROLE_BEFORE_TAIL on, are added. A check of a counter with a share has ROLE_PASSING_ONLY in independent calls.
--   Where nothing but ROLE_HAS_BAN or ROLE_BEFORE_TAIL is added, no ban has denied hits to report or an effect above BAN_ENFORCE.
--   Only a call with one key, of packed records none of which is checked twice or of a queue that is checked once, with
--   independent charges and no negative hits may be repeated.
--   A reservation charges more tokens than requested, if these pass, for the caller to spend soon: the maximum number of
--   tokens (4 bytes), the share of the remaining ones that may be taken, in 65536ths (2 bytes), and the hold time in
--   milliseconds (2 bytes). None are taken if fewer than half of the maximum are available. Only for a record that its
--   call checks once.
--
-- Replies one string, as each element of a reply costs Redis and its client time; if a call failed, the list of the parts:
-- first the time used (seconds since the epoch and microseconds past it, 4 bytes each), then the result of each call, or its
-- error if it is one of several calls: that call then has no effect, while the others do. A result has for each check:
--
--   | bytes | content |
--   |---|---|
--   | 1  | REPLY_ADMITTED or 0, with REPLY_HAS_BAN if the counter has an active ban and REPLY_HAS_LOANS if it has loans; or |
--   |    | REPLY_CONFLICT |
--   | 8 or 12 | the words of the state; of a queue the hits in it (4 bytes), the microseconds until the requested hits would |
--   |    | pass, -1 for never, and until the last hit expires (doubles); of a budget the used and the held hits (doubles) and the end |
--   |    | of the window (4 bytes) |
--   | 4  | after a reservation: the number of reserved tokens, which the words exclude |
--   | 6  | with REPLY_HAS_BAN: REPLY_BAN_ACTIVE, with REPLY_BAN_NEW if it begins; its end in seconds since the epoch; its level |
--   | 4  | with REPLY_HAS_LOANS: the limit of the region |
--
-- Of a repeated call, the words are those before it, and the first byte is left out; of a queue it is the number of repetitions
-- that pass, which come first (2 bytes), and the rest is as after the last one. A check with a ban then always has the byte of
-- a ban, 0 without an active one, which denies every repetition; and one with a share always has a byte, 1 or 0, before the
-- limit of the region.
--
-- Each key of packed records expires, to the millisecond, when the last of its content does; one of a queue a lifetime
-- later, so that a lengthened lifetime applies to it. Under a given time it lives for an hour instead: such a time does
-- not determine when the server's own clock reaches the end.

-- The time of all decisions.
local now
if ARGV[1] == '' then
  local time = redis.call('TIME')
  local s, us = tonumber(time[1]), tonumber(time[2])
  now = { s = s, us = us, micros = s * 1000000 + us }
else
  local micros = tonumber(ARGV[1])
  local s = math.floor(micros / 1000000)
  now = { s = s, us = micros - s * 1000000, micros = micros, given = true }
end

-- Whether a write sets the expiry though it is unchanged: one in 16, for a key that was restored without one. Otherwise
-- the present one is retained, since setting one is expensive in Redis.
local sets_expiry = now.us % 16 == 0
