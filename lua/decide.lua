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

-- Decides what is asked of one cell. Returns the reply, and the cell to write if it changed.
local function decide_cell(raw, asks, now)
  local ids, states, ends = open_cell(raw)
  local reply, changed, position = {}, false, 1
  while position <= #asks do
    local id, hits, p1, p2
    id, hits, p1, p2, position = struct.unpack('<c6ddd', asks, position)
    local algorithm = ALGORITHMS[string.byte(id, ID) % 16]
    local at, a, b = find_record(ids, id), 0, 0
    if at then
      a, b = struct.unpack('<I4I4', states, at * STATE + 1)
    end
    local admitted, a2, b2 = algorithm.apply(a, b, hits, p1, p2, now)
    reply[#reply + 1] = struct.pack('<BI4I4', admitted, a2, b2)
    local ends_at = algorithm.ends_at(a2, b2)
    if at and (a2 ~= a or b2 ~= b) then
      changed = true
      states = string.sub(states, 1, at * STATE) .. struct.pack('<I4I4', a2, b2)
        .. string.sub(states, at * STATE + STATE + 1)
    elseif not at and ends_at > now.s then
      changed = true
      if is_time_to_search(#ids / ID) then
        ids, states = live_records(ids, states, now)
      end
      if #ids / ID >= UINT16_MAX then
        error('cell with too many records')
      end
      ids = ids .. id
      states = states .. struct.pack('<I4I4', a2, b2)
    end
    ends = math.max(ends, ends_at)
  end
  if changed then
    return table.concat(reply), struct.pack('<BI2I4', FORMAT, #ids / ID, ends) .. ids .. states, ends
  end
  return table.concat(reply)
end

local function store_cell(key, cell, ends, now)
  if ends <= now.s then
    redis.call('DEL', key)
    return
  end
  local left = now.given and 3600000 or (ends - now.s) * 1000 - math.floor(now.us / 1000)
  redis.call('SET', key, cell, 'PX', string.format('%.0f', left))
end

local now = time_of(ARGV[1])
local reply, changes = { struct.pack('<I4I4', now.s, now.us) }, {}
-- All is decided before anything is written: an error leaves nothing half done.
for i = 1, #KEYS do
  local cell, ends
  reply[i + 1], cell, ends = decide_cell(redis.call('GET', KEYS[i]), ARGV[i + 1], now)
  if cell then
    changes[#changes + 1] = { KEYS[i], cell, ends }
  end
end
for i = 1, #changes do
  store_cell(changes[i][1], changes[i][2], changes[i][3], now)
end
return reply
