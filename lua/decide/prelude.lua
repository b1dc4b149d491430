-- Shared by the scripts below it: what a cell, an algorithm and a queue are.
--
-- Redis runs all of the composed script at each call, so what it defines is a cost of every call: for each function
-- some hundredths of a microsecond, and as much for each local that it finds outside of itself. So what not every call
-- needs is made within a function, when it is first asked for, or comes after the usual case; and what comes before
-- has locals and numbers of its own.
--
-- A cell is one string: a format byte (1), the number of records (2 bytes), the second at which the last of them
-- ends (4 bytes), the records' ids of 6 bytes each, then their states in the same order. Numbers are little
-- endian. The low 4 bits of an id's last byte are the algorithm's kind. A state is two words, and three where the
-- kind is 8 or above; their meaning is the algorithm's. All are unsigned and have 32 bits, but for the last two of
-- three: they have 16, unless one of them outgrows that. From then on the record is kept under the kind that comes
-- next, and has 32 bits for all three; a state is rarely so large, and small ones save a sixth of the memory.
--
-- An algorithm that packs its records is a table in ALGORITHMS under its kind, where a function of that kind in MAKE
-- puts it:
--   apply(a, b, c, hits, p1, p2, undone, now, times, only_passing)
--                     a, b, c: the state's words, all 0 for a counter that was never used; hits: > 0 charges,
--                     0 looks, < 0 gives back; p1, p2: its parameters; undone: for what takes a charge back, when
--                     that was made, in microseconds since the epoch; times: how often it is asked, one after the
--                     other; only_passing: whether denied hits count nowhere; returns 1 where all that is asked is
--                     admitted, else 0, and the state's new words
--   remaining(a, b, c, p1, p2, hold, now)
--                     how many tokens may be reserved for so many milliseconds, and the state's words that the
--                     algorithm charges with them
--   ends_at(a, b, c)  the second since the epoch at which the state is as good as unused
-- now is a table {s = seconds since the epoch, us = microseconds past that second, micros = both}.
--
-- An algorithm whose counters have keys of their own keeps the times of hits in order, and is a table in QUEUES
-- under its kind, made likewise. A queue is a table {key, lifetime = microseconds that a hit counts, horizon = the
-- time up to which hits have ended, now, used = hits in it, last = the time of the newest, where it is known}. Once its
-- key may have become empty nothing looks at it any more: while a slot moves to another node of a cluster, a key that
-- is gone is taken for one that has moved.
--   open(queue)                        fills it in, and moves to now what lies ahead of it
--   admits(queue, hits, limit, extra)  whether a charge passes
--   push(queue, hits, extra)           charges
--   give_back(queue, hits, extra)      gives hits back
--   newest(queue)                      the time of the newest hit, where there is one
--   time_of(queue, index)              the time of the hit at an index, the oldest being at 0
--   pause(queue, hits, extra)          microseconds for which nothing passes, whether or not there is room
--   close(queue)                       drops what has ended
-- With room for the kinds that are usual: tables grow at a cost.
local MAKE, ALGORITHMS = { [0] = false, [1] = false, [8] = false }, {}

-- The algorithm of a kind; nil for one that packs no records, or is not known here.
local function algorithm_of(kind)
  local algorithm = ALGORITHMS[kind]
  if not algorithm and MAKE[kind] then
    algorithm = MAKE[kind]()
    ALGORITHMS[kind] = algorithm
  end
  return algorithm
end
