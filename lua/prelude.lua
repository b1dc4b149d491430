-- Shared by the scripts below it: what a record of each algorithm is, and how a cell packs records.
--
-- A cell is one string: a format byte (1), the number of records (two bytes, little endian), the records' ids
-- of 6 bytes each, then their states of 8 bytes each in the same order. The low 4 bits of an id's last byte are
-- the algorithm's kind. A state is two unsigned 32-bit words whose meaning is the algorithm's.
--
-- An algorithm is a table in ALGORITHMS under its kind:
--   apply(a, b, hits, p1, p2, now)  a, b: the state's words, both 0 for a counter that was never used;
--                                   hits: > 0 charges, 0 looks, < 0 gives back; p1, p2: its parameters;
--                                   returns 1 or 0 for admitted or denied, and the state's new words
--   expires_at(a, b)                the second since the epoch at which the state is as good as unused
-- now is a table {s = seconds since the epoch, us = microseconds past that second}.
local ALGORITHMS = {}

local FORMAT = 1
local UINT32_MAX = 4294967295

-- Reads the cell into three tables by record id and a list of the ids, in stored order.
local function unpack_cell(raw)
  local ids, a, b = {}, {}, {}
  if not raw then
    return ids, a, b
  end
  local format, count = struct.unpack('<BI2', raw)
  if format ~= FORMAT then
    error('cell of an unknown format ' .. format)
  end
  local states = 4 + count * 6
  for i = 1, count do
    local id = string.sub(raw, i * 6 - 2, i * 6 + 3)
    ids[i] = id
    a[id], b[id] = struct.unpack('<I4I4', raw, states + (i - 1) * 8)
  end
  return ids, a, b
end

-- Packs the records that are still in use at now. Returns the cell and the second at which its last record
-- ends, or nil when there is nothing to keep.
local function pack_cell(ids, a, b, now)
  local kept, states, last = {}, {}, 0
  for i = 1, #ids do
    local id = ids[i]
    local ends = ALGORITHMS[string.byte(id, 6) % 16].expires_at(a[id], b[id])
    if ends > now.s then
      kept[#kept + 1] = id
      states[#states + 1] = struct.pack('<I4I4', a[id], b[id])
      if ends > last then
        last = ends
      end
    end
  end
  if #kept == 0 then
    return nil
  end
  return struct.pack('<BI2', FORMAT, #kept) .. table.concat(kept) .. table.concat(states), last
end
