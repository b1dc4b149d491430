-- Hits in the order of their times; twin of src/algorithm/queue.rs, where it is explained.
--
-- A queue is one string under a key of its own: a format byte (1), the hits in it (4 bytes, little endian), then
-- its entries. An entry of a log is 8 bytes: 52 bits of its time in microseconds since the epoch and 12 bits of
-- its hits less one, big endian. One of a concurrency limit has the lease's name in 8 bytes after that, zeros
-- when it has none.
local QUEUE_HEADER = 5
local MAX_ENTRY = 4096
local NO_LEASE = string.rep('\0', 8)

local function open_queue(raw, width)
  if not raw then
    return { used = 0, entries = '', width = width }
  end
  local format, used = struct.unpack('<BI4', raw)
  if format ~= FORMAT then
    error('queue of an unknown format ' .. format)
  end
  return { used = used, entries = string.sub(raw, QUEUE_HEADER + 1), width = width }
end

-- Time and hits of the entry that begins at a byte.
local function entry_at(queue, position)
  local high, low = struct.unpack('>I4I4', queue.entries, position)
  local hits = low % MAX_ENTRY
  return high * 1048576 + (low - hits) / MAX_ENTRY, hits + 1
end

local function pack_entry(at, hits)
  local low = at % 1048576
  return struct.pack('>I4I4', (at - low) / 1048576, low * MAX_ENTRY + hits - 1)
end

-- Puts another entry, or nothing, in place of the one that begins at a byte.
local function replace_entry(queue, position, entry)
  local entries = queue.entries
  queue.entries = string.sub(entries, 1, position - 1) .. entry .. string.sub(entries, position + queue.width)
  queue.changed = true
end

local function newest(queue)
  local size = #queue.entries
  if size > 0 then
    return (entry_at(queue, size - queue.width + 1))
  end
end

-- Drops what has ended by now, and moves what lies ahead of it.
local function advance(queue, now, lifetime)
  local width, last = queue.width, #queue.entries
  while last > 0 do
    local at, hits = entry_at(queue, last - width + 1)
    if at <= now then
      break
    end
    local name = string.sub(queue.entries, last - width + 9, last)
    replace_entry(queue, last - width + 1, pack_entry(now, hits) .. name)
    last = last - width
  end
  local live, size = 1, #queue.entries
  while live <= size do
    local at, hits = entry_at(queue, live)
    if at + lifetime > now then
      break
    end
    queue.used = queue.used - hits
    live = live + width
  end
  if live > 1 then
    queue.entries = string.sub(queue.entries, live)
    queue.changed = true
  end
end

local function push(queue, now, hits, name)
  local added = {}
  queue.used = queue.used + hits
  while hits > 0 do
    local part = math.min(hits, MAX_ENTRY)
    added[#added + 1] = pack_entry(now, part) .. name
    hits = hits - part
  end
  queue.entries = queue.entries .. table.concat(added)
  queue.changed = true
end

-- Takes up to so many hits out of the entry that begins at a byte; returns how many are left to take.
local function take(queue, position, hits)
  local at, held = entry_at(queue, position)
  local taken = math.min(held, hits)
  local entry = ''
  if taken < held then
    entry = pack_entry(at, held - taken) .. string.sub(queue.entries, position + 8, position + queue.width - 1)
  end
  replace_entry(queue, position, entry)
  queue.used = queue.used - taken
  return hits - taken
end

local function remove_newest(queue, hits)
  while hits > 0 and queue.used > 0 do
    hits = take(queue, #queue.entries - queue.width + 1, hits)
  end
end

local function remove_oldest(queue, hits)
  while hits > 0 and queue.used > 0 do
    hits = take(queue, 1, hits)
  end
end

local function remove_at(queue, at, hits)
  for position = #queue.entries - queue.width + 1, 1, -queue.width do
    if hits > 0 and entry_at(queue, position) == at then
      hits = take(queue, position, hits)
    end
  end
end

-- Removes the entries of a lease. A search may hit astride two entries.
local function remove_lease(queue, name)
  local from = 1
  while true do
    local at = string.find(queue.entries, name, from, true)
    if not at then
      return
    end
    if (at - 9) % queue.width == 0 then
      take(queue, at - 8, MAX_ENTRY)
      from = at - 8
    else
      from = at + 1
    end
  end
end

-- Microseconds until so many hits have room under a limit; -1 when they never will.
local function wait_for_room(queue, now, lifetime, limit, hits)
  if hits > limit then
    return -1
  end
  local too_many, wait, position = queue.used + hits - limit, 0, 1
  while too_many > 0 and position <= #queue.entries do
    local at, held = entry_at(queue, position)
    too_many = too_many - held
    wait = at + lifetime - now
    position = position + queue.width
  end
  return wait
end
