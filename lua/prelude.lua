-- Shared by the scripts below it: what a cell, an algorithm and a queue are.
--
-- Redis runs all of the composed script at each call, so what it defines is a cost of every call: about a tenth of a
-- microsecond for each function. What not every call needs is made within a function, when it is first asked for.
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
--   reserve(a, b, c, p1, p2, wish, now)
--                     charges ahead, of what remains in the state, as many tokens as the wish allows; returns how
--                     many, and the state's new words; wish is {most, share, hold}, which ask.lua explains
--   ends_at(a, b, c)  the second since the epoch at which the state is as good as unused
-- now is a table {s = seconds since the epoch, us = microseconds past that second, micros = both}.
--
-- An algorithm whose counters have keys of their own keeps the times of hits in order, and is a table in QUEUES
-- under its kind, made likewise. A queue is a table {key, lifetime = microseconds that a hit counts, horizon = the time up to which
-- hits have ended, now, used = hits in it, last = the time of the newest, where it is known}. Once its key may have
-- become empty nothing looks at it any more: while a slot moves to another node of a cluster, a key that is gone is
-- taken for one that has moved.
--   open(queue)                        fills it in, and moves to now what lies ahead of it
--   admits(queue, hits, limit, extra)  whether a charge passes
--   push(queue, hits, extra)           charges
--   give_back(queue, hits, extra)      gives hits back
--   newest(queue)                      the time of the newest hit, where there is one
--   time_of(queue, index)              the time of the hit at an index, the oldest being at 0
--   pause(queue, hits, extra)          microseconds for which nothing passes, whether or not there is room
--   close(queue)                       drops what has ended
local MAKE, MAKE_QUEUE = {}, {}
local ALGORITHMS, QUEUES = {}, {}

-- What is made of a kind, or nil where there is nothing to make it.
local function made_of(kind, made, makers)
  if not made[kind] and makers[kind] then
    made[kind] = makers[kind]()
  end
  return made[kind]
end

-- The algorithm of a kind; nil for one that packs no records, or is not known here.
local function packed_algorithm(kind)
  return ALGORITHMS[kind] or made_of(kind, ALGORITHMS, MAKE)
end

local FORMAT = 1
local HEADER = 7
local ID = 6
local STATE = 8
local LARGE_STATE = 12
local THREE_WORDS = 8
local UINT16_MAX = 65535
local UINT32_MAX = 4294967295
local NOTHING = '\0\0\0\0\0\0\0\0'
local MOST_ARGUMENTS = 1000
