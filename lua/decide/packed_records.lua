-- Cells of packed records; prelude.lua defines the format.
local UINT16_MAX = 65535
-- Records that a packed cell has where it cannot become a segmented one: a call reads and writes all of them.
local MAX_UNSEGMENTED = 2048

-- The sliding window with 32-bit counts.
MAKE[KIND_LARGE_SLIDING_WINDOW] = MAKE[KIND_SLIDING_WINDOW]

-- Splits a cell into its packed ids, its packed states, and the second at which it expires.
local function open_cell(raw)
  if not raw then
    return { ids = '', states = '', ends = 0, old_ends = 0 }
  end
  local format, count, ends = struct.unpack('<BI2I4', raw)
  if format ~= PACKED_FORMAT then
    error('cell of an unknown format ' .. format)
  end
  local states_at = CELL_HEADER_BYTES + count * ID_BYTES + 1
  local ids, states = string.sub(raw, CELL_HEADER_BYTES + 1, states_at - 1), string.sub(raw, states_at)
  return { ids = ids, states = states, ends = ends, old_ends = ends }
end

-- The position of an id among packed ids, counted from 0, or nil. A match may straddle two ids.
local function find_record(ids, id)
  local from = 1
  while true do
    local at = string.find(ids, id, from, true)
    if not at then
      return nil
    end
    if (at - 1) % ID_BYTES == 0 then
      return (at - 1) / ID_BYTES
    end
    from = at + 1
  end
end

local function kind_at(ids, at)
  return string.byte(ids, at * ID_BYTES + ID_BYTES) % KINDS
end

local function is_large(kind)
  return kind > KIND_OF_THREE_WORDS and kind % 2 == 1
end

local function size_of(kind)
  return is_large(kind) and LARGE_STATE_BYTES or STATE_BYTES
end

-- The id under the next kind.
local function enlarged(id)
  return string.sub(id, 1, ID_BYTES - 1) .. string.char(string.byte(id, ID_BYTES) + 1)
end

-- The byte position of a record's state, counted from 1.
local function state_position(cell, at)
  local position = at * STATE_BYTES + 1
  if #cell.states == #cell.ids / ID_BYTES * STATE_BYTES then
    return position
  end
  for before = 0, at - 1 do
    position = position + size_of(kind_at(cell.ids, before)) - STATE_BYTES
  end
  return position
end

-- The words of the state at a byte position.
local function read_state(states, position, kind)
  if kind < KIND_OF_THREE_WORDS then
    local a, b = struct.unpack('<I4I4', states, position)
    return a, b, 0
  end
  local a, b, c = struct.unpack(is_large(kind) and '<I4I4I4' or '<I4I2I2', states, position)
  return a, b, c
end

local function pack_state(a, b, c, kind)
  if kind < KIND_OF_THREE_WORDS then
    return struct.pack('<I4I4', a, b)
  end
  return struct.pack(is_large(kind) and '<I4I4I4' or '<I4I2I2', a, b, c)
end

-- The record of an id of this kind: its words, all 0 if absent; its position among the records, counted from
-- 0, or nil; and the kind that it is stored under.
local function read_record(cell, id, kind)
  local at = find_record(cell.ids, id)
  if not at and kind >= KIND_OF_THREE_WORDS then
    at = find_record(cell.ids, enlarged(id))
    kind = at and kind + 1 or kind
  end
  if not at then
    return 0, 0, 0, nil, kind
  end
  local a, b, c = read_state(cell.states, state_position(cell, at), kind)
  return a, b, c, at, kind
end

-- Functions that few calls need: make_upkeep is called on first use.
local upkeep
local function make_upkeep()
  -- Calls visit(at, from, to, ends) for each record: its position among the records, counted from 0; the first and the last
  -- byte of its state; and when it expires, nil if its algorithm is unknown.
  local function each_record(cell, visit)
    local position = 1
    for at = 0, #cell.ids / ID_BYTES - 1 do
      local kind = kind_at(cell.ids, at)
      local next_position, algorithm = position + size_of(kind), algorithm_of(kind)
      visit(at, position, next_position - 1, algorithm and algorithm.ends_at(read_state(cell.states, position, kind)))
      position = next_position
    end
  end

  return {
    each_record = each_record,

    -- Drops the records that have expired, and returns whether there were any. A record of an unknown algorithm, such as
    -- one of a newer version, is retained.
    drop_ended = function(cell)
      local has_ended, ids, states = false, {}, {}
      each_record(cell, function(_, _, _, ends)
        has_ended = has_ended or ends and ends <= now.s
      end)
      if not has_ended then
        return false
      end
      each_record(cell, function(at, from, to, ends)
        if not ends or ends > now.s then
          ids[#ids + 1] = string.sub(cell.ids, at * ID_BYTES + 1, at * ID_BYTES + ID_BYTES)
          states[#states + 1] = string.sub(cell.states, from, to)
        end
      end)
      cell.ids, cell.states = table.concat(ids), table.concat(states)
      return true
    end,

    -- The second at which the last record expires. One of an unknown algorithm counts with the expiry of the cell.
    last_end = function(cell)
      local last = 0
      each_record(cell, function(_, _, _, ends)
        last = math.max(last, ends or cell.ends)
      end)
      return last
    end,
  }
end

-- Adds a record. At certain sizes expired records are dropped first; this bounds their number and keeps the cost per
-- added record low.
local function add_record(cell, id, state)
  local count = #cell.ids / ID_BYTES
  if count == 16 or count == 32 or count == 64 or (count >= 128 and count % 128 == 0) or count == UINT16_MAX then
    upkeep = upkeep or make_upkeep()
    upkeep.drop_ended(cell)
  end
  if #cell.ids / ID_BYTES >= UINT16_MAX then
    error('cell with too many records')
  end
  cell.ids, cell.states, cell.has_grown = cell.ids .. id, cell.states .. state, true
end

-- Replaces the state of the record at a position, which is stored under the kind.
local function replace_state(cell, at, kind, state)
  local from = state_position(cell, at)
  cell.states = string.sub(cell.states, 1, from - 1) .. state .. string.sub(cell.states, from + size_of(kind))
end

-- Stores the words of an id's record, which is at a position under a kind, or is new.
local function store_record(cell, id, at, kind, a, b, c)
  local outgrows = not is_large(kind) and kind >= KIND_OF_THREE_WORDS and math.max(b, c) > UINT16_MAX
  local state = pack_state(a, b, c, outgrows and kind + 1 or kind)
  if at then
    replace_state(cell, at, kind, state)
  end
  if at and outgrows then
    cell.ids = string.sub(cell.ids, 1, at * ID_BYTES) .. enlarged(id) .. string.sub(cell.ids, at * ID_BYTES + ID_BYTES + 1)
  elseif not at then
    add_record(cell, outgrows and enlarged(id) or id, state)
  end
  cell.changed = true
  if cell.account then
    cell.account()
  end
end

-- Removes the record at a position, which is stored under the kind.
local function remove_record(cell, at, kind)
  replace_state(cell, at, kind, '')
  cell.ids = string.sub(cell.ids, 1, at * ID_BYTES) .. string.sub(cell.ids, at * ID_BYTES + ID_BYTES + 1)
  cell.changed, cell.ends_sooner = true, true
  if cell.account then
    cell.account()
  end
end

-- Records of bans and of loans; make_ban_records and make_loans are called on first use.
local ban_records, make_ban_records
local loans, make_loans

-- Segmented cells; make_segments is called on first use.
local segments, make_segments

local function store_cell(i, cell)
  if cell.store then
    return cell.store(i)
  end
  if cell.ends_sooner then
    upkeep = upkeep or make_upkeep()
    cell.ends = upkeep.last_end(cell)
  end
  if #cell.ids > MAX_PACKED_RECORDS * ID_BYTES and cell.old_ends > 0 then
    segments = segments or make_segments()
    if segments.convert(i, cell) then
      return
    elseif cell.has_grown and #cell.ids > MAX_UNSEGMENTED * ID_BYTES then
      error('cell with too many records')
    end
  end
  local header = struct.pack('<BI2I4', PACKED_FORMAT, #cell.ids / ID_BYTES, cell.ends)
  write_cell(i, header .. cell.ids .. cell.states, cell.ends, cell.old_ends)
end
