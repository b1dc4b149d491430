-- Decides all that a request asks of one hash tag, in one atomic step.
--   KEYS[i]      a cell
--   ARGV[1]      the time in microseconds since the epoch, or '' for the server's own
--   ARGV[1 + i]  what is asked of cell i: per ask, packed little endian, the record's id (6 bytes) and three
--                doubles: hits (> 0 charges, 0 looks, < 0 gives back) and the algorithm's two parameters
-- Replies a list of strings:
--   [1]          the time used: seconds since the epoch and microseconds past it, 32 bits each
--   [1 + i]      per ask of cell i: 1 or 0 for admitted or denied (one byte), then the state's two words
-- Each cell expires, to the millisecond, when the last of its records does. Under a given time it lives for an
-- hour instead: such a time says nothing about when the server's own clock will reach the end.

-- The time that the decision is made at.
local function time_of(given)
  if given ~= '' then
    local us = tonumber(given)
    local seconds = math.floor(us / 1000000)
    return { s = seconds, us = us - seconds * 1000000, given = true }
  end
  local time = redis.call('TIME')
  return { s = tonumber(time[1]), us = tonumber(time[2]) }
end

-- Writes the cell back, or removes it when nothing in it is in use.
local function store_cell(key, was_there, ids, a, b, now)
  local packed, ends = pack_cell(ids, a, b, now)
  if packed then
    local left = now.given and 3600000 or (ends - now.s) * 1000 - math.floor(now.us / 1000)
    redis.call('SET', key, packed, 'PX', string.format('%.0f', left))
  elseif was_there then
    redis.call('DEL', key)
  end
end

local function decide_cell(key, asks, now)
  local raw = redis.call('GET', key)
  local ids, a, b = unpack_cell(raw)
  local reply, changed, position = {}, false, 1
  while position <= #asks do
    local id, hits, p1, p2
    id, hits, p1, p2, position = struct.unpack('<c6ddd', asks, position)
    if not a[id] then
      ids[#ids + 1] = id
      a[id], b[id] = 0, 0
    end
    local admitted, a2, b2 = ALGORITHMS[string.byte(id, 6) % 16].apply(a[id], b[id], hits, p1, p2, now)
    changed = changed or a2 ~= a[id] or b2 ~= b[id]
    a[id], b[id] = a2, b2
    reply[#reply + 1] = struct.pack('<BI4I4', admitted, a2, b2)
  end
  if changed then
    store_cell(key, raw, ids, a, b, now)
  end
  return table.concat(reply)
end

local now = time_of(ARGV[1])
local reply = { struct.pack('<I4I4', now.s, now.us) }
for i = 1, #KEYS do
  reply[i + 1] = decide_cell(KEYS[i], ARGV[i + 1], now)
end
return reply
