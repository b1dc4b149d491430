-- The usual case by itself: one counter that is charged for itself, and has its cell to itself. What it does is what
-- the rest of the script would do; it is here because it needs so little of it.
-- Returns the reply, or nil and the cell where the case is another one.
local function decide_alone(key, packed, now)
  local id, role, hits, p1, p2, extra = struct.unpack(ASK, packed)
  local kind = string.byte(id, ID) % 16
  local algorithm = ALGORITHMS[kind]
  if role ~= 0 or not algorithm then
    return
  end
  local raw = redis.call('GET', key)
  local layout = kind < THREE_WORDS and '<I4I4' or '<I4I2I2'
  local a, b, c = 0, 0, 0
  if raw then
    if #raw ~= HEADER + ID + STATE or string.byte(raw) ~= FORMAT or string.sub(raw, HEADER + 1, HEADER + ID) ~= id then
      return nil, raw
    end
    a, b, c = struct.unpack(layout, raw, HEADER + ID + 1)
    c = kind < THREE_WORDS and 0 or c
  end
  local admitted, a2, b2, c2 = algorithm.apply(a, b, c, hits, p1, p2, undone_of(hits, extra), now)
  if kind >= THREE_WORDS and math.max(b2, c2) > UINT16_MAX then
    return nil, raw
  end
  if a2 ~= a or b2 ~= b or c2 ~= c then
    local ends = algorithm.ends_at(a2, b2, c2)
    local micros = (ends - now.s) * 1000000 - now.us
    if micros > 0 then
      local left = now.given and 3600000 or math.ceil(micros / 1000)
      local cell = struct.pack('<BI2I4', FORMAT, 1, ends) .. id .. struct.pack(layout, a2, b2, c2)
      redis.call('SET', key, cell, 'PX', integer(left))
    elseif raw then
      redis.call('DEL', key)
    end
  end
  local words = kind < THREE_WORDS and '<BI4I4' or '<BI4I4I4'
  return { struct.pack('<I4I4', now.s, now.us), struct.pack(words, admitted, a2, b2, c2) }
end

local now = time_of(ARGV[1])
local only_cell
if #KEYS == 1 and #ARGV[2] == ASK_SIZE then
  local reply
  reply, only_cell = decide_alone(KEYS[1], ARGV[2], now)
  if reply then
    return reply
  end
end
