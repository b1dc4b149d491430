-- The usual case by itself: the counters of one cell, each charged for itself, and those that are asked are all that
-- the cell has, in its order. What it does is what the rest of the script would do; it is here because it needs so
-- little of it.

-- What each key of KEYS had when the script began, where that was read for all of them: false for nothing, or for what
-- is no string. And what was written since: false for nothing. Two calls may have a key in common.
local read, written = {}, {}

-- The cell at key i as it is now, or nil.
local function read_cell(i)
  local raw = written[KEYS[i]]
  if raw == nil then
    -- Only the latter tells a key of another type from none.
    raw = read[i] or redis.call('GET', KEYS[i])
    read[i] = raw
  end
  return raw
end

-- Has a key hold the cell until its end, which was another one before, or hold nothing where that is over. It costs
-- Redis much to set an expiry, so the one that is there is kept if the end is the same. One of these in 16 is set all
-- the same, for a key that somebody restored without one.
local function write_cell(key, raw, ends, old_ends, now)
  local micros = (ends - now.s) * 1000000 - now.us
  if micros <= 0 then
    redis.call('DEL', key)
    raw = false
  elseif ends == old_ends and now.us % 16 ~= 0 then
    redis.call('SET', key, raw, 'KEEPTTL')
  else
    redis.call('SET', key, raw, 'PX', now.given and 3600000 or math.ceil(micros / 1000))
  end
  written[key] = raw
end

-- What an ask came to, whose record had a, b, c and has a2, b2, c2.
local function outcome_of(is_short, times, admitted, a, b, c, a2, b2, c2)
  if times > 1 then
    return struct.pack(is_short and '<I4I4' or '<I4I4I4', a, b, c)
  end
  return struct.pack(is_short and '<BI4I4' or '<BI4I4I4', admitted, a2, b2, c2)
end

-- Grants a wish, if it may be: returns what tells of it, and the state's words after it.
local function grant(wish, may_be, algorithm, a, b, c, p1, p2, now)
  local tokens = 0
  if may_be then
    tokens, a, b, c = algorithm.reserve(a, b, c, p1, p2, wish, now)
  end
  return struct.pack('<I4', tokens), a, b, c
end

-- What is asked for the counters of key i, which its call has alone; or nil where the case is another one.
local function decide_usual(i, times, now)
  local packed = ARGV[1 + i]
  local last_byte, first_role = string.byte(packed, CALL_SIZE + ID, CALL_SIZE + ID + 1)
  if first_role ~= 0 or not packed_algorithm(last_byte % 16) then
    return nil
  end
  local count = (#packed - CALL_SIZE) / ASK_SIZE
  local raw = read_cell(i)
  local states, old_ends = HEADER + count * ID, 0
  if raw then
    local format, known
    format, known, old_ends = struct.unpack('<BI2I4', raw)
    if format ~= FORMAT or known ~= count or #raw ~= states + count * STATE then
      return nil
    end
  end
  local outcomes, ids, kept, last_end, changed = {}, {}, {}, 0, false
  for at = 0, count - 1 do
    local id, role, hits, p1, p2, extra = struct.unpack(ASK, packed, CALL_SIZE + 1 + at * ASK_SIZE)
    local kind = string.byte(id, ID) % 16
    local is_short, algorithm = kind < THREE_WORDS, packed_algorithm(kind)
    local layout = is_short and '<I4I4' or '<I4I2I2'
    local a, b, c = 0, 0, 0
    -- A counter that is asked twice is another case.
    if ids[id] then
      return nil
    elseif raw then
      if string.sub(raw, HEADER + 1 + at * ID, HEADER + ID + at * ID) ~= id then
        return nil
      end
      a, b, c = struct.unpack(layout, raw, states + 1 + at * STATE)
      c = is_short and 0 or c
    else
      ids[id] = true
    end
    local admitted, a2, b2, c2 = algorithm.apply(a, b, c, hits, p1, p2, undone_of(hits, extra), now, times)
    local outcome = outcome_of(is_short, times, admitted, a, b, c, a2, b2, c2)
    local wish = wish_of(hits, extra)
    if wish then
      local granted
      granted, a2, b2, c2 = grant(wish, admitted == 1, algorithm, a2, b2, c2, p1, p2, now)
      outcome = outcome .. granted
    end
    if not is_short and math.max(b2, c2) > UINT16_MAX then
      return nil
    end
    local ends = algorithm.ends_at(a2, b2, c2)
    if raw or ends > now.s then
      changed = changed or a2 ~= a or b2 ~= b or c2 ~= c
      last_end = math.max(last_end, ends)
      ids[#ids + 1], kept[#kept + 1] = id, struct.pack(layout, a2, b2, c2)
    end
    outcomes[at + 1] = outcome
  end
  if changed then
    local header = struct.pack('<BI2I4', FORMAT, #ids, last_end)
    write_cell(KEYS[i], header .. table.concat(ids) .. table.concat(kept), last_end, old_ends, now)
  end
  return table.concat(outcomes)
end
