-- Shared by the scripts below it: what a record of each algorithm is, and how a cell packs records.
--
-- A cell is one string: a format byte (1), the number of records (2 bytes), the second at which the last of them
-- ends (4 bytes), the records' ids of 6 bytes each, then their states of 8 bytes each in the same order. Numbers
-- are little endian. The low 4 bits of an id's last byte are the algorithm's kind. A state is two unsigned 32-bit
-- words whose meaning is the algorithm's.
--
-- An algorithm is a table in ALGORITHMS under its kind:
--   apply(a, b, hits, p1, p2, now)  a, b: the state's words, both 0 for a counter that was never used;
--                                   hits: > 0 charges, 0 looks, < 0 gives back; p1, p2: its parameters;
--                                   returns 1 or 0 for admitted or denied, and the state's new words
--   ends_at(a, b)                   the second since the epoch at which the state is as good as unused
-- now is a table {s = seconds since the epoch, us = microseconds past that second}.
local ALGORITHMS = {}

local FORMAT = 1
local HEADER = 7
local ID = 6
local STATE = 8
local UINT16_MAX = 65535
local UINT32_MAX = 4294967295

-- Takes a cell apart: its ids and its states, each packed, and the second at which it ends.
local function open_cell(raw)
  if not raw then
    return '', '', 0
  end
  local format, count, ends = struct.unpack('<BI2I4', raw)
  if format ~= FORMAT then
    error('cell of an unknown format ' .. format)
  end
  local states = HEADER + count * ID
  return string.sub(raw, HEADER + 1, states), string.sub(raw, states + 1), ends
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

-- The records that have not ended at now. One of an algorithm that is not known here, as of a newer version, is
-- kept as it is.
local function live_records(ids, states, now)
  local kept_ids, kept_states = {}, {}
  for i = 0, #ids / ID - 1 do
    local id = string.sub(ids, i * ID + 1, i * ID + ID)
    local state = string.sub(states, i * STATE + 1, i * STATE + STATE)
    local algorithm = ALGORITHMS[string.byte(id, ID) % 16]
    if not algorithm or algorithm.ends_at(struct.unpack('<I4I4', state)) > now.s then
      kept_ids[#kept_ids + 1] = id
      kept_states[#kept_states + 1] = state
    end
  end
  return table.concat(kept_ids), table.concat(kept_states)
end

-- Whether a cell of so many records is to be searched for dead ones before another is added. Now and then is
-- enough to bound their number, and keeps the search cheap for each record that is added.
local function is_time_to_search(count)
  return count == 16 or count == 32 or count == 64 or (count >= 128 and count % 128 == 0) or count == UINT16_MAX
end
