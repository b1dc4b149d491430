-- Decides all that a request asks of one hash tag, in one atomic step.
--   KEYS[i]      a cell of packed records, or a queue of hits
--   ARGV[1]      the time in microseconds since the epoch, or '' for the server's own
--   ARGV[1 + i]  what is asked of key i: per ask, packed little endian, the record's id (6 bytes), its role (1
--                byte), three doubles: hits (> 0 charges, 0 looks, < 0 gives back) and the algorithm's two
--                parameters, and 8 bytes more, whose meaning is the algorithm's: zeros, or for what takes a charge
--                back, when that was made, in microseconds since the epoch (a double)
--   A role is 0 where each counter is charged for itself, the same for all asks of a call; else all that is
--   charged passes or none, 1 for an ask that keeps the others from it when it is denied, 2 for one that does not.
-- Replies a list of strings:
--   [1]          the time used: seconds since the epoch and microseconds past it, 32 bits each
--   [1 + i]      per ask of key i: 1 or 0 for admitted or denied (one byte), then the state's words (4 bytes
--                each), or of a queue the hits in it (4 bytes), microseconds until the hits asked for pass, -1 for
--                never, and until the last of the hits in it has ended (doubles)
-- Each key expires, to the millisecond, when the last of what it holds does. Under a given time it lives for an
-- hour instead: such a time says nothing about when the server's own clock will reach the end.
local ASK = '<c6Bdddc8'
local ASK_SIZE = 39

-- The time that the decision is made at.
local function time_of(given)
  if given ~= '' then
    local micros = tonumber(given)
    local seconds = math.floor(micros / 1000000)
    return { s = seconds, us = micros - seconds * 1000000, micros = micros, given = true }
  end
  local time = redis.call('TIME')
  local s, us = tonumber(time[1]), tonumber(time[2])
  return { s = s, us = us, micros = s * 1000000 + us }
end

-- When the charge was made that is to be undone; nil for another ask.
local function undone_of(hits, extra)
  return hits < 0 and extra ~= NOTHING and struct.unpack('<d', extra) or nil
end
