-- Segmented cells. A packed cell becomes a hash once it has more than MAX_PACKED_RECORDS records, so that a call reads and writes
-- only the records beside its own. Fields of the hash:
--   meta     SEGMENTED_FORMAT (1 byte), the number of segments, of records, the second at which the last of them expires, and
--            the segment to sweep next (4 bytes each)
--   0, 1, …  the segments: packed cells, each with the records whose ids are assigned to it; missing if it has none
-- Ids are assigned by linear hashing (Litwin 1980): segments are split one at a time, when they have more than
-- SEGMENT_RECORDS on average. So a call moves no more records than in proportion to those that it adds.
--
-- Calls that add records sweep some segments, and so does one write in 16: expired records are dropped. A hash with few
-- records left becomes a packed cell again. After refunds its key may live longer than its last record, never shorter.
--
-- An open segmented cell is a table {name = its key, segments = those read, by number, count = the number of all, modulus
-- = the smallest power of two that is not below it, records, added = those added by this call, ends, old_ends, cursor,
-- changed, segment_of(id), store(i)}. A segment is an open packed cell, with {counted = its records when they were last
-- counted, account() = called after each change}.
make_segments = function()
  -- Each local of the enclosing parts that this function captures is a cost of every call that gets here.
  local SEGMENT_RECORDS = 16
  local MAX_RECORDS = 65535
  -- Records added for each segment swept.
  local ADDED_PER_SWEEP = 8
  -- Segments swept before a call is refused for lack of room.
  local SWEEPS_WHEN_FULL = 8
  -- Fields of one command.
  local MAX_FIELDS = 250

  upkeep = upkeep or make_upkeep()
  local drop_ended, last_end = upkeep.drop_ended, upkeep.last_end
  local account, store

  local function modulus_of(count)
    local modulus = 1
    while modulus < count do
      modulus = modulus * 2
    end
    return modulus
  end

  -- The number of the segment of an id. The kind has no influence, since a state may outgrow it.
  local function number_of(cell, id)
    local number = struct.unpack('>I4', id, 2) % cell.modulus
    return number < cell.count and number or number - cell.modulus / 2
  end

  local function add_segment(cell, number, raw)
    local segment = open_cell(raw)
    segment.counted = #segment.ids / ID_BYTES
    segment.account = function()
      account(cell, segment)
    end
    cell.segments[number] = segment
    return segment
  end

  -- Reads those of these segments that have not been read.
  local function load(cell, numbers)
    local missing = {}
    for at, number in ipairs(numbers) do
      if not cell.segments[number] then
        missing[#missing + 1] = number
      end
      if #missing > 0 and (#missing == MAX_FIELDS or at == #numbers) then
        for place, raw in ipairs(redis.call('HMGET', cell.name, unpack(missing))) do
          add_segment(cell, missing[place], raw)
        end
        missing = {}
      end
    end
  end

  local function new_cell(i, count, records, ends, cursor)
    local cell = {
      name = KEYS[i],
      segments = {},
      count = count,
      modulus = modulus_of(count),
      records = records,
      added = 0,
      ends = ends,
      old_ends = ends,
      cursor = cursor,
    }
    cell.segment_of = function(id)
      return cell.segments[number_of(cell, id)]
    end
    cell.store = function(at)
      return store(at, cell)
    end
    return cell
  end

  -- Opens the hash at key i with the segments of all checks; an error if the key has another type.
  local function open(i, checks)
    local meta = redis.call('HMGET', KEYS[i], 'meta')[1] or '\0'
    if string.byte(meta) ~= SEGMENTED_FORMAT then
      error('cell of an unknown format ' .. string.byte(meta))
    end
    local cell = new_cell(i, select(2, struct.unpack('<BI4I4I4I4', meta)))
    local numbers = {}
    for at, check in ipairs(checks) do
      numbers[at] = number_of(cell, check.id)
    end
    load(cell, numbers)
    return cell
  end

  -- Updates the number of records after a change of a segment.
  local function count_again(cell, segment)
    local count = #segment.ids / ID_BYTES
    cell.records = cell.records + count - segment.counted
    segment.counted = count
  end

  local function sweep(cell, number)
    load(cell, { number })
    local segment = cell.segments[number]
    if drop_ended(segment) then
      segment.changed = true
      count_again(cell, segment)
    end
  end

  -- Accounts for a record that was changed or added; an error if there is no room for it.
  account = function(cell, segment)
    local before, sweeps = cell.records, 0
    count_again(cell, segment)
    cell.changed, cell.added = true, cell.added + math.max(cell.records - before, 0)
    while cell.records > MAX_RECORDS do
      if sweeps == SWEEPS_WHEN_FULL then
        error('cell with too many records')
      end
      -- Of any segments: the cursor of a call that fails is not stored.
      sweep(cell, (now.us + sweeps) % cell.count)
      sweeps = sweeps + 1
    end
  end

  -- Replaces the content of the segments that the records of a packed cell belong to.
  local function distribute(cell, packed)
    local ids, states = {}, {}
    upkeep.each_record(packed, function(at, from, to)
      local id = string.sub(packed.ids, at * ID_BYTES + 1, at * ID_BYTES + ID_BYTES)
      local number = number_of(cell, id)
      if not ids[number] then
        ids[number], states[number] = {}, {}
      end
      table.insert(ids[number], id)
      table.insert(states[number], string.sub(packed.states, from, to))
    end)
    for number in pairs(ids) do
      local segment = cell.segments[number] or add_segment(cell, number)
      segment.ids, segment.states = table.concat(ids[number]), table.concat(states[number])
      segment.ends, segment.changed = packed.ends, true
      count_again(cell, segment)
    end
  end

  -- Adds a segment, which takes the records of another one that now belong to it.
  local function split(cell)
    local modulus = modulus_of(cell.count + 1)
    local number = cell.count - modulus / 2
    load(cell, { number })
    local source = cell.segments[number]
    local packed = { ids = source.ids, states = source.states, ends = source.ends }
    source.ids, source.states, source.changed = '', '', true
    add_segment(cell, cell.count)
    cell.count, cell.modulus = cell.count + 1, modulus
    distribute(cell, packed)
    count_again(cell, source)
  end

  -- Sets fields, then removes those of empty segments, so that the key exists throughout: a key that is missing is
  -- taken for one that has migrated to another node of a cluster.
  local function write(cell)
    local meta = struct.pack('<BI4I4I4I4', SEGMENTED_FORMAT, cell.count, cell.records, cell.ends, cell.cursor)
    local fields, emptied = { 'meta', meta }, {}
    local function flush(command, list, size)
      if #list >= size then
        write_command(command, cell.name, unpack(list))
        return {}
      end
      return list
    end
    for number, segment in pairs(cell.segments) do
      if segment.changed and segment.counted > 0 then
        local header = struct.pack('<BI2I4', PACKED_FORMAT, segment.counted, segment.ends)
        fields[#fields + 1] = number
        fields[#fields + 1] = header .. segment.ids .. segment.states
        fields = flush('HSET', fields, 2 * MAX_FIELDS)
      elseif segment.changed then
        emptied[#emptied + 1] = number
      end
    end
    flush('HSET', fields, 1)
    for first = 1, #emptied, MAX_FIELDS do
      redis.call('HDEL', cell.name, unpack(emptied, first, math.min(first + MAX_FIELDS - 1, #emptied)))
    end
  end

  -- Milliseconds until the key is to expire, which may be negative.
  local function lifetime(ends)
    local micros = (ends - now.s) * 1000000 - now.us
    return micros > 0 and now.given and 3600000 or math.ceil(micros / 1000)
  end

  -- Whether a packed cell can become a hash without the risk of losing it: with the permissions, which are checked
  -- before the type, and not while its slot migrates to another node, when a deleted key cannot be set again.
  local function may_convert(name)
    local probes =
      { { 'HMGET', name, 'meta' }, { 'HSET', name, 'meta', '' }, { 'HDEL', name, 'meta' }, { 'HGETALL', name } }
    for _, probe in ipairs(probes) do
      local reply = redis.pcall(unpack(probe))
      if type(reply) ~= 'table' or not reply.err or not string.find(reply.err, 'WRONGTYPE', 1, true) then
        return false
      end
    end
    -- No key has this name.
    return redis.pcall('GET', name .. '~') == false
  end

  -- Turns the packed cell of key i, which is stored, into a hash, unless it cannot or need not; returns whether it did.
  local function convert(i, packed)
    local millis = lifetime(packed.ends)
    if millis <= 0 or not may_convert(KEYS[i]) or type(redis.pcall('PEXPIRE', KEYS[i], millis)) == 'table' then
      return false
    end
    drop_ended(packed)
    local records = #packed.ids / ID_BYTES
    if records <= MAX_PACKED_RECORDS then
      return false
    end
    local cell = new_cell(i, math.ceil(records / SEGMENT_RECORDS), 0, packed.ends, 0)
    distribute(cell, packed)
    write_command('DEL', cell.name)
    write(cell)
    redis.call('PEXPIRE', cell.name, millis)
    return true
  end

  -- Turns a hash with few records into a packed cell.
  local function collapse(i, cell)
    local fields = redis.call('HGETALL', cell.name)
    for at = 1, #fields, 2 do
      local number = tonumber(fields[at])
      if number and not cell.segments[number] then
        add_segment(cell, number, fields[at + 1])
      end
    end
    local packed = open_cell(nil)
    packed.old_ends = cell.old_ends
    for _, segment in pairs(cell.segments) do
      drop_ended(segment)
      packed.ids, packed.states = packed.ids .. segment.ids, packed.states .. segment.states
      packed.ends = math.max(packed.ends, last_end(segment))
    end
    store_cell(i, packed)
  end

  store = function(i, cell)
    for _, segment in pairs(cell.segments) do
      cell.ends = segment.changed and math.max(cell.ends, segment.ends) or cell.ends
    end
    local sweeps = math.ceil(cell.added / ADDED_PER_SWEEP)
    if now.us % 16 == 0 then
      sweeps = sweeps + 1
    end
    for _ = 1, math.min(sweeps, cell.count) do
      sweep(cell, cell.cursor % cell.count)
      cell.cursor = (cell.cursor + 1) % cell.count
    end
    while cell.records > cell.count * SEGMENT_RECORDS do
      split(cell)
    end
    local millis = lifetime(cell.ends)
    if cell.records <= MAX_PACKED_RECORDS / 2 or millis <= 0 then
      return collapse(i, cell)
    end
    write(cell)
    if cell.ends ~= cell.old_ends or now.us % 16 == 0 then
      redis.call('PEXPIRE', cell.name, millis)
    end
  end

  return { open = open, convert = convert }
end
