-- The usual case by itself: the counters of one cell, each charged for itself, and those that are asked are all that
-- the cell has, in its order. What it does is what the rest of the script would do; it is here because it needs so
-- little of it.

-- Decides what is asked of a record that has a, b, c. Returns its new words, and what the reply tells of it. passes: of
-- an ask that is held back, 1 or 0 for whether it would have passed; of another one nil.
local function decide_words(algorithm, is_short, a, b, c, times, hits, p1, p2, extra, only_passing, passes)
  local is_plain, undone = extra == '\0\0\0\0\0\0\0\0', nil
  if hits < 0 and not is_plain then
    undone = struct.unpack('<d', extra)
  end
  local asked = passes and 0 or hits
  local admitted, a2, b2, c2 = algorithm.apply(a, b, c, asked, p1, p2, undone, now, times, only_passing)
  local told
  if times > 1 then
    told = struct.pack(is_short and '<I4I4' or '<I4I4I4', a, b, c)
  else
    told = struct.pack(is_short and '<BI4I4' or '<BI4I4I4', passes or admitted, a2, b2, c2)
  end
  if hits > 0 and not is_plain then
    local most, share, hold = struct.unpack('<I4I2I2', extra)
    local tokens = 0
    if admitted == 1 and not passes then
      local remaining, a3, b3, c3 = algorithm.remaining(a2, b2, c2, p1, p2, hold, now)
      tokens = math.max(math.min(most, math.floor(remaining * share / 65536)), 0)
      if tokens > 0 then
        admitted, a2, b2, c2 = algorithm.apply(a3, b3, c3, tokens, p1, p2, nil, now, 1)
      end
    end
    told = told .. struct.pack('<I4', tokens)
  end
  return a2, b2, c2, told
end

-- Returns what a call comes to that asks one counter of key i and nothing else, or nil where the case is another one.
local function decide_single(i, times)
  local id, role, hits, p1, p2, extra = struct.unpack('<c6Bdddc8', ARGV[1 + i], 5)
  local kind = string.byte(id, 6) % 16
  local is_short, algorithm = kind < 8, algorithm_of(kind)
  if role ~= 0 or not algorithm then
    return nil
  end
  local layout = is_short and '<BI2I4c6I4I4' or '<BI2I4c6I4I2I2'
  local raw, a, b, c, old_ends = read_cell(i), 0, 0, 0, 0
  if raw then
    if #raw ~= 21 then
      return nil
    end
    local format, count, known
    format, count, old_ends, known, a, b, c = struct.unpack(layout, raw)
    if format ~= 1 or count ~= 1 or known ~= id then
      return nil
    end
    c = is_short and 0 or c
  end
  local a2, b2, c2, told = decide_words(algorithm, is_short, a, b, c, times, hits, p1, p2, extra)
  if not is_short and math.max(b2, c2) > 65535 then
    return nil
  end
  if a2 ~= a or b2 ~= b or c2 ~= c then
    local ends = algorithm.ends_at(a2, b2, c2)
    if raw or ends > now.s then
      write_cell(i, struct.pack(layout, 1, 1, ends, id, a2, b2, c2), ends, old_ends)
    end
  end
  return told
end

-- The same for any number of counters.
local function decide_usual(i, times)
  local packed = ARGV[1 + i]
  local last_byte, role = string.byte(packed, 10, 11)
  if role ~= 0 or not algorithm_of(last_byte % 16) then
    return nil
  end
  local count = (#packed - 4) / 39
  local raw = read_cell(i)
  local states, old_ends = 7 + count * 6, 0
  if raw then
    local format, known
    format, known, old_ends = struct.unpack('<BI2I4', raw)
    if format ~= 1 or known ~= count or #raw ~= states + count * 8 then
      return nil
    end
  end
  local outcomes, ids, kept, last_end, changed = {}, {}, {}, 0, false
  for at = 0, count - 1 do
    local id, _, hits, p1, p2, extra = struct.unpack('<c6Bdddc8', packed, 5 + at * 39)
    local kind = string.byte(id, 6) % 16
    local is_short, algorithm = kind < 8, algorithm_of(kind)
    local layout = is_short and '<I4I4' or '<I4I2I2'
    local a, b, c = 0, 0, 0
    if raw then
      if string.sub(raw, 8 + at * 6, 13 + at * 6) ~= id then
        return nil
      end
      a, b, c = struct.unpack(layout, raw, states + 1 + at * 8)
      c = is_short and 0 or c
    elseif ids[id] then
      -- A counter that is asked twice is another case.
      return nil
    else
      ids[id] = true
    end
    local a2, b2, c2, told = decide_words(algorithm, is_short, a, b, c, times, hits, p1, p2, extra)
    if not is_short and math.max(b2, c2) > 65535 then
      return nil
    end
    local ends = algorithm.ends_at(a2, b2, c2)
    if raw or ends > now.s then
      changed = changed or a2 ~= a or b2 ~= b or c2 ~= c
      last_end = math.max(last_end, ends)
      ids[#ids + 1], kept[#kept + 1] = id, struct.pack(layout, a2, b2, c2)
    end
    outcomes[at + 1] = told
  end
  if changed then
    local header = struct.pack('<BI2I4', 1, #ids, last_end)
    write_cell(i, header .. table.concat(ids) .. table.concat(kept), last_end, old_ends)
  end
  return table.concat(outcomes)
end
