-- The usual case by itself: the counters of one cell, each charged for itself, and those that are asked are all that
-- the cell has, in its order. What it does is what the rest of the script would do; it is here because it needs so
-- little of it.
-- Returns the reply, or nil and the cell where the case is another one.
local function decide_usual(key, packed, now)
  if not ALGORITHMS[string.byte(packed, ID) % 16] then
    return
  end
  local count = #packed / ASK_SIZE
  local raw = redis.call('GET', key)
  local states = HEADER + count * ID
  if raw and (#raw ~= states + count * STATE or string.byte(raw) ~= FORMAT) then
    return nil, raw
  end
  local outcomes, ids, kept, last_end, changed = {}, {}, {}, 0, false
  local is_known = {}
  for i = 0, count - 1 do
    local id, role, hits, p1, p2, extra = struct.unpack(ASK, packed, i * ASK_SIZE + 1)
    local kind = string.byte(id, ID) % 16
    local is_short = kind < THREE_WORDS
    local layout = is_short and '<I4I4' or '<I4I2I2'
    local a, b, c = 0, 0, 0
    -- A counter that is asked twice is another case.
    if role ~= 0 or is_known[id] or raw and string.sub(raw, HEADER + i * ID + 1, HEADER + i * ID + ID) ~= id then
      return nil, raw
    elseif raw then
      a, b, c = struct.unpack(layout, raw, states + i * STATE + 1)
      c = is_short and 0 or c
    end
    local algorithm = ALGORITHMS[kind]
    local admitted, a2, b2, c2 = algorithm.apply(a, b, c, hits, p1, p2, undone_of(hits, extra), now)
    if not is_short and math.max(b2, c2) > UINT16_MAX then
      return nil, raw
    end
    local ends = algorithm.ends_at(a2, b2, c2)
    if raw or ends > now.s then
      changed = changed or a2 ~= a or b2 ~= b or c2 ~= c
      last_end = math.max(last_end, ends)
      ids[#ids + 1], kept[#kept + 1] = id, struct.pack(layout, a2, b2, c2)
    end
    is_known[id] = true
    outcomes[i + 1] = struct.pack(is_short and '<BI4I4' or '<BI4I4I4', admitted, a2, b2, c2)
  end
  local micros = (last_end - now.s) * 1000000 - now.us
  if changed and micros > 0 then
    local left = now.given and 3600000 or math.ceil(micros / 1000)
    local header = struct.pack('<BI2I4', FORMAT, #ids, last_end)
    redis.call('SET', key, header .. table.concat(ids) .. table.concat(kept), 'PX', integer(left))
  elseif changed and raw then
    redis.call('DEL', key)
  end
  return { struct.pack('<I4I4', now.s, now.us), table.concat(outcomes) }
end

local now = time_of(ARGV[1])
local only_cell
if #KEYS == 1 then
  local reply
  reply, only_cell = decide_usual(KEYS[1], ARGV[2], now)
  if reply then
    return reply
  end
end
