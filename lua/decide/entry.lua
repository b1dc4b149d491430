-- Decides what requests ask of hash tags: one or several calls, each in one atomic step.
--   KEYS[i]      a cell of packed records, or a queue of hits; those of a call one after the other
--   ARGV[1]      the time in microseconds since the epoch, or '' for the server's own
--   ARGV[1 + i]  what is asked of key i, packed little endian: how many keys the call has that begins with this one,
--                0 for a key of the call before (2 bytes); how often that call is made, one after the other (2
--                bytes); and per ask the record's id (6 bytes), its role (1 byte), three doubles: hits (> 0 charges,
--                0 looks, < 0 gives back) and the algorithm's two parameters, and 8 bytes more, whose meaning is the
--                algorithm's: zeros, or for what takes a charge back, when that was made, in microseconds since the
--                epoch (a double), or for a charge of packed records the wish to reserve; what they are to a queue,
--                its algorithm's script says
--   A role is 0 or 3 where each counter is charged for itself, for all asks of a call, 3 for one that counts only what
--   passes whatever its algorithm; else all that is charged passes or none, 1 for an ask that keeps the others from it
--   when it is denied, 2 for one that does not.
--   Only a call with one key, of packed records none of which is asked twice, and with roles of 0 or 3 and hits that are
--   not below 0 is made more than once.
--   A wish is to charge more than was asked, if that passes, for the one who asks to spend in a moment: the most
--   tokens (4 bytes), the share of what remains that may be taken, in 65536ths (2 bytes), and for how many
--   milliseconds they are held (2 bytes). None are taken if fewer than half of the most may be. Only for a
--   record that its call asks once.
-- Replies one string, of which each part is a cost to Redis and its client; where a call failed, the list of the parts:
--   [1]          the time used: seconds since the epoch and microseconds past it, 32 bits each
--   [1 + n]      what call n came to, or the error that it met, where it is one of several: then it is as if it had
--                not been made, and the others are. Per ask, in the order of the keys: 1 or 0 for admitted or denied
--                (one byte), then the state's words (4 bytes each), or of a queue the hits in it (4 bytes),
--                microseconds until the hits asked for pass, -1 for never, and until the last of the hits in it has
--                ended (doubles). Where a call is made more than once: only the state's words as they were before.
--                Of an ask with a wish then how many tokens are reserved (4 bytes), which the words leave out.
-- Each key expires, to the millisecond, when the last of what it holds does. Under a given time it lives for an
-- hour instead: such a time says nothing about when the server's own clock will reach the end.

-- The time that all is decided at.
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
