-- Shared by the scripts below it: what a record of each algorithm is, and how a cell packs records.
--
-- A cell is one string: a format byte (1), the number of records (2 bytes), the second at which the last of them
-- ends (4 bytes), the records' ids of 6 bytes each, then their states in the same order. Numbers are little
-- endian. The low 4 bits of an id's last byte are the algorithm's kind. A state is two words, and three where the
-- kind is 8 or above; their meaning is the algorithm's. All are unsigned and have 32 bits, but for the last two of
-- three: they have 16, unless one of them outgrows that. From then on the record is kept under the kind that comes
-- next, and has 32 bits for all three; a state is rarely so large, and small ones save a sixth of the memory.
--
-- An algorithm that packs its records is a table in ALGORITHMS under its kind:
--   apply(a, b, c, hits, p1, p2, undone, now, only_passing)
--                     a, b, c: the state's words, all 0 for a counter that was never used; hits: > 0 charges,
--                     0 looks, < 0 gives back; p1, p2: its parameters; undone: for what takes a charge back, when
--                     that was made, in microseconds since the epoch; only_passing: whether denied hits
--                     count nowhere; returns 1 or 0 for admitted or denied, and the state's new words
--   ends_at(a, b, c)  the second since the epoch at which the state is as good as unused
-- now is a table {s = seconds since the epoch, us = microseconds past that second, micros = both}.
--
-- An algorithm whose counters have keys of their own keeps the times of hits in order, and is a table in QUEUES
-- under its kind. A queue is a table {key, lifetime = microseconds that a hit counts, horizon = the time up to which
-- hits have ended, now, used = hits in it, last = the time of the newest, where it is known}. Once its key may have become empty nothing looks at it any more: while a
-- slot moves to another node of a cluster, a key that is gone is taken for one that has moved.
--   open(queue)                        fills it in, and moves to now what lies ahead of it
--   admits(queue, hits, limit, extra)  whether a charge passes
--   push(queue, hits, extra)           charges
--   give_back(queue, hits, extra)      gives hits back
--   newest(queue)                      the time of the newest hit, where there is one
--   time_of(queue, index)              the time of the hit at an index, the oldest being at 0
--   pause(queue, hits, extra)          microseconds for which nothing passes, whether or not there is room
--   close(queue)                       drops what has ended
local ALGORITHMS = {}
local QUEUES = {}

local FORMAT = 1
local HEADER = 7
local ID = 6
local STATE = 8
local LARGE_STATE = 12
local THREE_WORDS = 8
local UINT16_MAX = 65535
local UINT32_MAX = 4294967295
local NOTHING = string.rep('\0', 8)
local MOST_ARGUMENTS = 1000

-- A whole number as commands take it, with all of its digits.
local function integer(number)
  return string.format('%.0f', number)
end

-- Takes a cell apart: its ids and its states, each packed, and the second at which it ends.
local function open_cell(raw)
  if not raw then
    return { ids = '', states = '', ends = 0 }
  end
  local format, count, ends = struct.unpack('<BI2I4', raw)
  if format ~= FORMAT then
    error('cell of an unknown format ' .. format)
  end
  local states = HEADER + count * ID
  return { ids = string.sub(raw, HEADER + 1, states), states = string.sub(raw, states + 1), ends = ends }
end

-- The position of an id among packed ids, counted from 0, or nil. A search may hit astride two ids.
local function find_record(ids, id)
  local from = 1
  while true do
    local at = string.find(ids, id, from, true)
    if not at then
      return nil
    end
    if (at - 1) % ID == 0 then
      return (at - 1) / ID
    end
    from = at + 1
  end
end

local function kind_at(ids, at)
  return string.byte(ids, at * ID + ID) % 16
end

local function is_large(kind)
  return kind > THREE_WORDS and kind % 2 == 1
end

local function size_of(kind)
  return is_large(kind) and LARGE_STATE or STATE
end

-- An id under the kind that comes next.
local function enlarged(id)
  return string.sub(id, 1, ID - 1) .. string.char(string.byte(id, ID) + 1)
end

-- Where the state of a record begins, counted from 1.
local function state_position(cell, at)
  local position = at * STATE + 1
  if #cell.states == #cell.ids / ID * STATE then
    return position
  end
  for before = 0, at - 1 do
    position = position + size_of(kind_at(cell.ids, before)) - STATE
  end
  return position
end

-- The words of the state at a position.
local function read_state(states, position, kind)
  if kind < THREE_WORDS then
    local a, b = struct.unpack('<I4I4', states, position)
    return a, b, 0
  end
  local a, b, c = struct.unpack(is_large(kind) and '<I4I4I4' or '<I4I2I2', states, position)
  return a, b, c
end

local function pack_state(a, b, c, kind)
  if kind < THREE_WORDS then
    return struct.pack('<I4I4', a, b)
  end
  return struct.pack(is_large(kind) and '<I4I4I4' or '<I4I2I2', a, b, c)
end

-- The record of an id, which has the kind: its words, all 0 if it is not there; its position among the records,
-- counted from 0, or nil; and the kind that it is kept under.
local function read_record(cell, id, kind)
  local at = find_record(cell.ids, id)
  if not at and kind >= THREE_WORDS then
    at = find_record(cell.ids, enlarged(id))
    kind = at and kind + 1 or kind
  end
  if not at then
    return 0, 0, 0, nil, kind
  end
  local a, b, c = read_state(cell.states, state_position(cell, at), kind)
  return a, b, c, at, kind
end

-- Drops the records that have ended at now. One of an algorithm that is not known here, as of a newer version, is
-- kept as it is.
local function drop_ended(cell, now)
  local ids, states, position = {}, {}, 1
  for at = 0, #cell.ids / ID - 1 do
    local kind = kind_at(cell.ids, at)
    local size = size_of(kind)
    local algorithm = ALGORITHMS[kind]
    if not algorithm or algorithm.ends_at(read_state(cell.states, position, kind)) > now.s then
      ids[#ids + 1] = string.sub(cell.ids, at * ID + 1, at * ID + ID)
      states[#states + 1] = string.sub(cell.states, position, position + size - 1)
    end
    position = position + size
  end
  cell.ids, cell.states = table.concat(ids), table.concat(states)
end

-- The second at which the last of the records ends. That of an algorithm that is not known here is as far as the
-- cell's own.
local function last_end(cell)
  local ends, position = 0, 1
  for at = 0, #cell.ids / ID - 1 do
    local kind = kind_at(cell.ids, at)
    local algorithm = ALGORITHMS[kind]
    if not algorithm then
      return cell.ends
    end
    ends = math.max(ends, algorithm.ends_at(read_state(cell.states, position, kind)))
    position = position + size_of(kind)
  end
  return ends
end

-- Whether a cell of so many records is to be searched for dead ones before another is added. Now and then is
-- enough to bound their number, and keeps the search cheap for each record that is added.
local function is_time_to_search(count)
  return count == 16 or count == 32 or count == 64 or (count >= 128 and count % 128 == 0) or count == UINT16_MAX
end
