-- Definitions shared by the parts below: cells, algorithms and queues.
--
-- Redis runs the whole composed script on each call, so every definition is a cost of every call: some hundredths of a
-- microsecond for each function, and as much for each local of an enclosing scope that it captures. Parts that only some
-- calls need are therefore created within a function on first use, or stand below the fast path; and the parts above it
-- have locals and numbers of their own.
--
-- A cell is one string: PACKED_FORMAT (1 byte), the number of records (2 bytes), the second at which the last of them
-- expires (4 bytes), the records' ids of 6 bytes each, then their states in the same order. Numbers are little
-- endian. The low 4 bits of an id's last byte are the algorithm's kind. A state is two words, or three from
-- KIND_OF_THREE_WORDS on; the algorithm defines their meaning. All words are unsigned and have 32 bits, except the last two of
-- three: these have 16, unless one of them overflows. From then on the record is stored under the next kind and has
-- 32 bits for all three; large states are rare, and small ones save a sixth of the memory.
--
-- An algorithm with packed records is a table in ALGORITHMS under its kind, created by the function of that kind in MAKE:
--   apply(a, b, c, hits, p1, p2, charged_at, now, times, only_passing, bound, overdraws)
--                     a, b, c: the state's words, all 0 for an unused counter; hits: > 0 charges, 0 checks, < 0
--                     refunds; p1, p2: the algorithm's parameters; charged_at: for a refund of one charge, the time of
--                     that charge in microseconds since the epoch; times: the number of consecutive requests;
--                     only_passing: whether denied hits are not counted; bound: the maximum that a charge in full
--                     leaves, or nil; overdraws: whether this is one; both only for one request; returns 1 if every
--                     request is admitted, else 0, and the new words of the state
--   remaining(a, b, c, p1, p2, hold, now)
--                     the number of tokens that may be reserved for `hold` milliseconds, and the words of the state to
--                     charge them to
--   ends_at(a, b, c)  the second since the epoch from which the state is equivalent to an unused one
-- now is a table {s = seconds since the epoch, us = microseconds past that second, micros = both}.
--
-- An algorithm whose counters have keys of their own keeps the times of hits in order, and is a table in QUEUES
-- under its kind, created likewise. A queue is a table {key, lifetime = microseconds that a hit counts, horizon = the
-- time up to which hits have expired, now, used = hits in it, last = the time of the newest, if known}. Once its key may
-- have become empty, it is not read again: while a slot migrates to another node of a cluster, a missing key is taken
-- for one that has migrated.
--   open(queue)                        fills it in, and moves hits with a time in the future to now if one of them is
--                                      more than four lifetimes ahead
--   admits(queue, hits, limit, extra)  whether a charge passes
--   push(queue, hits, extra)           charges; returns the time of the newest hit, if known
--   refund(queue, hits, extra)         refunds hits
--   newest(queue)                      the time of the newest hit, if any
--   time_of(queue, index)              the time of the hit at an index; the oldest is at 0
--   spacing_delay(queue, hits, extra)  microseconds for which nothing passes, even below the limit
--   close(queue)                       removes expired hits
--   retention                          the least time in microseconds for which the key outlives its hits
-- Sized for the common kinds: growing a table has a cost.
local MAKE, ALGORITHMS = { [KIND_FIXED_WINDOW] = false, [KIND_TOKEN_BUCKET] = false, [KIND_SLIDING_WINDOW] = false }, {}

-- The algorithm of a kind; nil for a kind without packed records, or an unknown one.
local function algorithm_of(kind)
  local algorithm = ALGORITHMS[kind]
  if not algorithm and MAKE[kind] then
    algorithm = MAKE[kind]()
    ALGORITHMS[kind] = algorithm
  end
  return algorithm
end
