-- Fast path: one cell with independent charging, where each checked record exists (or the cell is new), checked
-- entirely and in order, or in part. Equivalent to the general path, but needs only a fraction of its definitions.

-- Decides a check of a record with the words a, b, c. Returns its new words, its part of the reply, 1 or 0 for whether it
-- was admitted, and the number of reserved tokens. passes: for a withheld check, 1 or 0 for whether it would have passed;
-- otherwise nil.
local function decide_words(algorithm, is_short, a, b, c, times, hits, p1, p2, extra, only_passing, passes)
  local is_plain, charged_at = extra == '\0\0\0\0\0\0\0\0', nil
  if hits < 0 and not is_plain then
    charged_at = struct.unpack('<d', extra)
  end
  local asked, tokens = passes and 0 or hits, 0
  local admitted, a2, b2, c2 = algorithm.apply(a, b, c, asked, p1, p2, charged_at, now, times, only_passing)
  local result
  if times > 1 then
    result = struct.pack(is_short and '<I4I4' or '<I4I4I4', a, b, c)
  else
    result = struct.pack(is_short and '<BI4I4' or '<BI4I4I4', passes or admitted, a2, b2, c2)
  end
  if hits > 0 and not is_plain then
    local max_tokens, share, hold = struct.unpack('<I4I2I2', extra)
    if admitted == 1 and not passes then
      local remaining, a3, b3, c3 = algorithm.remaining(a2, b2, c2, p1, p2, hold, now)
      tokens = math.min(max_tokens, math.floor(remaining * share / 65536))
      -- A few tokens are not worth holding: the quota is nearly used up.
      if tokens < math.floor(max_tokens / 2) then
        tokens = 0
      end
      if tokens > 0 then
        admitted, a2, b2, c2 = algorithm.apply(a3, b3, c3, tokens, p1, p2, nil, now, 1)
      end
    end
    result = result .. struct.pack('<I4', tokens)
  end
  return a2, b2, c2, result, passes or admitted, tokens
end

-- Returns the result of a call that checks counters of key i with the content raw, or nil if the fast path does not
-- apply. A part of ban_bytes at the end of the argument describes bans.
local function decide_several(i, times, raw, ban_bytes)
  local packed = ARGV[1 + i]
  local count = (#packed - 4 - ban_bytes) / 39
  local records, old_ends = count, 0
  if raw then
    local format
    -- Not the table of a key of another type, nor a cell that is to become one.
    if #raw < 7 then
      return nil
    end
    format, records, old_ends = struct.unpack('<BI2I4', raw)
    if format ~= 1 or records < count or records > 128 or #raw ~= 7 + records * 14 then
      return nil
    end
  end
  -- If the cell has more records than are checked, only the changed ones are patched.
  local has_more, states = records > count, 7 + records * 6
  local last_end, patched = has_more and old_ends or 0, raw
  local outcomes, ids, kept, changed = {}, {}, {}, false
  for at = 0, count - 1 do
    local id, role, hits, p1, p2, extra = struct.unpack('<c6Bdddc8', packed, 5 + at * 39)
    local kind = string.byte(id, 6) % 16
    local is_short, algorithm = kind < 8, algorithm_of(kind)
    local layout = is_short and '<I4I4' or '<I4I2I2'
    local a, b, c, place = 0, 0, 0, at
    -- A counter that is checked twice needs the general path.
    if ids[id] then
      return nil
    end
    ids[id] = true
    if raw then
      local found = 8 + at * 6
      if string.sub(raw, found, found + 5) ~= id then
        found = has_more and 7 or nil
        -- A match may straddle two ids.
        while found and (found == 7 or (found - 8) % 6 > 0) do
          found = string.find(raw, id, found + 1, true)
        end
      end
      if not found or found > states then
        return nil
      end
      place = (found - 8) / 6
      a, b, c = struct.unpack(layout, raw, states + 1 + place * 8)
      c = is_short and 0 or c
    end
    local a2, b2, c2, result, admitted =
      decide_words(algorithm, is_short, a, b, c, times, hits, p1, p2, extra, role % 8 == 3)
    if role > 127 then
      -- A denial makes a record of bans.
      if admitted == 0 then
        return nil
      end
      result = times > 1 and result .. '\0' or result
    end
    local ends = algorithm.ends_at(a2, b2, c2)
    -- The state may overflow its size, or the record may have been the last to expire.
    if not is_short and math.max(b2, c2) > 65535
      or has_more and ends < old_ends and algorithm.ends_at(a, b, c) >= old_ends then
      return nil
    end
    if raw or ends > now.s then
      local state, has_changed = struct.pack(layout, a2, b2, c2), a2 ~= a or b2 ~= b or c2 ~= c
      changed, last_end = changed or has_changed, math.max(last_end, ends)
      if not has_more then
        ids[#ids + 1], kept[#kept + 1] = id, state
      elseif has_changed then
        local from = states + place * 8
        patched = string.sub(patched, 1, from) .. state .. string.sub(patched, from + 9)
      end
    end
    outcomes[at + 1] = result
  end
  if changed then
    local body
    if has_more then
      body = string.sub(patched, 8)
    else
      records, body = #ids, table.concat(ids) .. table.concat(kept)
    end
    write_cell(i, struct.pack('<BI2I4', 1, records, last_end) .. body, last_end, old_ends)
  end
  return table.concat(outcomes)
end

-- Same as decide_several, for a call with one counter.
local function decide_single(i, times, raw, ban_bytes)
  if raw and #raw ~= 21 then
    return decide_several(i, times, raw, ban_bytes)
  end
  local id, role, hits, p1, p2, extra = struct.unpack('<c6Bdddc8', ARGV[1 + i], 5)
  local kind = string.byte(id, 6) % 16
  local is_short, algorithm = kind < 8, algorithm_of(kind)
  local layout = is_short and '<BI2I4c6I4I4' or '<BI2I4c6I4I2I2'
  local a, b, c, old_ends = 0, 0, 0, 0
  if raw then
    local format, count, known
    format, count, old_ends, known, a, b, c = struct.unpack(layout, raw)
    if format ~= 1 or count ~= 1 or known ~= id then
      return nil
    end
    c = is_short and 0 or c
  end
  local a2, b2, c2, result, admitted =
    decide_words(algorithm, is_short, a, b, c, times, hits, p1, p2, extra, role % 8 == 3)
  if not is_short and math.max(b2, c2) > 65535 then
    return nil
  end
  if role > 127 then
    if admitted == 0 then
      return nil
    end
    result = times > 1 and result .. '\0' or result
  end
  if a2 ~= a or b2 ~= b or c2 ~= c then
    local ends = algorithm.ends_at(a2, b2, c2)
    if raw or ends > now.s then
      write_cell(i, struct.pack(layout, 1, 1, ends, id, a2, b2, c2), ends, old_ends)
    end
  end
  return result
end

-- Returns the result of a call on the single key i, or nil if the fast path does not apply.
local function decide_fast(i, times)
  local packed = ARGV[1 + i]
  local last_byte, role = string.byte(packed, 10, 11)
  local ban_bytes, raw = 0, nil
  if role ~= 0 and role ~= 3 then
    if role ~= 128 and role ~= 131 and role ~= 8 and role ~= 11 then
      return nil
    end
    ban_bytes = #packed == 69 and 26 or struct.unpack('<I2', packed, #packed - 1) * 24 + 2
    raw = read_cell(i)
    -- A counter with a record of bans, of 12 bytes.
    if raw and #raw == 39 then
      read = read or {}
      read[i] = raw
      return nil
    end
  end
  if not algorithm_of(last_byte % 16) then
    return nil
  end
  if ban_bytes == 0 then
    raw = read_cell(i)
  end
  return (#packed == 43 + ban_bytes and decide_single or decide_several)(i, times, raw, ban_bytes)
end
