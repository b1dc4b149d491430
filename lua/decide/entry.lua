-- Decides rate limit requests on hash tags: one or several calls, each in one atomic step.
--   KEYS[i]      a cell of packed records, or a queue of hits; the keys of a call are consecutive; across slots they are
--                the last arguments, see across_slots.lua
--   ARGV[1]      the time in microseconds since the epoch, or '' for the server's own clock
--   ARGV[1 + i]  the checks of key i, packed little endian: the number of keys of the call that begins with this key, 0
--                for a further key of the same call (2 bytes); the number of times that this call is repeated (2
--                bytes); and per check the record's id (6 bytes), its role (1 byte), three doubles: hits (> 0 charges,
--                0 checks, < 0 refunds) and the algorithm's two parameters, and 8 extra bytes defined by the
--                algorithm: zeros, or for a refund of one charge its time in microseconds since the epoch (a double),
--                or for a charge of packed records a reservation; for queues and
--                budgets see the script of the algorithm
--   The role is 0 or 3, for all checks of a call, if each counter is charged independently; with 3, only passing hits
--   count, whatever the algorithm. Otherwise all charges pass or none: a check with role 1 blocks the others when it is
--   denied, one with role 2 does not, those with role 4 do when all of them in the call are denied, and one with role 5
--   does in any case; one with role 6, of a fixed window, blocks the others like one with role 1, and is charged itself
--   when it is denied.
--   To a role below 16 are added 32 for a charge that counts in full, whatever is denied; 64 for any check of a window
--   that carries hits beyond its limit to the next ones, or of a bucket that goes into debt; and 16 for the other checks
--   of a call with such checks. The extra bytes of the former are the maximum that such a charge leaves (a double).
--   To the role of a check of a counter with bans are added 128, and 8 to those of the other checks of its key. Where that is
--   all that is added, none of the bans has anything to report or an effect above 1. For each of the former, in their
--   order, the checks are followed by its ban: threshold and interval (2 bytes each), duration, maximum duration, the time
--   until it is forgiven, the hits that count as one (4 bytes each), the hits that were denied without a call since the last
--   one (2 bytes), the maximum level, and the effect: 0 to watch, 1 to deny, 2 to lift the ban, 3 to forgive it (1 byte
--   each). Times are in seconds. The number of these bans is in the last 2 bytes.
--   8 is also added to the roles of the checks of a key with a share: a counter that regions share, which has role 3 in
--   independent calls. Then 32768 are added to the number of bans, which is also there if it is 0, and before it stand, for each of
--   these checks, its number from 0 (2 bytes), the hits of the region's share and those of the whole limit (4 bytes each),
--   and the ticks in which a bucket of the latter is filled by as many hits (a double); then their number (2 bytes).
--   Only a call with one key, of packed records none of which is checked twice or of a queue that is checked once, with
--   roles of 0 or 3 and no negative hits may be repeated.
--   A reservation charges more tokens than requested, if these pass, for the caller to spend soon: the maximum number of
--   tokens (4 bytes), the share of the remaining ones that may be taken, in 65536ths (2 bytes), and the hold time in
--   milliseconds (2 bytes). None are taken if fewer than half of the maximum are available. Only for a record that its
--   call checks once.
-- Replies one string, as each element of a reply costs Redis and its client time; if a call failed, the list of the parts:
--   [1]          the time used: seconds since the epoch and microseconds past it, 32 bits each
--   [1 + n]      the result of call n; or its error if it is one of several calls: that call then has no effect, while
--                the others do. Per check, in the order of the keys: 1 or 0 for admitted or denied (one byte), or 8 for a
--                reservation under a known lease that does not hold its hits; then the
--                state's words (4 bytes each), or for a budget the used and the held hits
--                (doubles) and the end of the window (4 bytes), or for a queue the hits in it (4 bytes), the microseconds until the
--                requested hits would pass, -1 for never, and until the last hit expires (doubles). For a repeated call:
--                only the state's words before it, or for a queue how many of the repetitions pass, which come first (2
--                bytes), and the rest after the last one. For a check with a reservation, then the number of reserved
--                tokens (4 bytes), which the words exclude. To the byte of a check whose counter has an active ban are
--                added 2, and its ban follows: one byte, 1, or 3 for a ban that begins; its end in seconds since the
--                epoch (4 bytes) and its level (1). For a repeated call of a check with a ban, that byte is always there,
--                0 without an active ban. An enforced ban denies every repetition. To the byte of a check with a share are added 4 if its
--                counter has loans, and at the end of its part follows the limit of the region (4 bytes). For a repeated call, a
--                byte is always there instead, 1 or 0, and then that limit.
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
