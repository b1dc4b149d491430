-- Fast path: one cell where each checked record exists (or the cell is new), checked entirely and in order, or in part.
-- Equivalent to the general path, but needs only a fraction of its definitions. Without this part, such calls take twice as
-- much of Redis' processor.
-- decide_records is long: each further function would cost its definition, with each local variable that it captures, in
-- every command that comes here.

-- Reserves tokens after a charge that passed, for a record with the words a, b, c. Returns the number of tokens and the
-- new words.
local function reserve(algorithm, a, b, c, p1, p2, reservation)
  local max_tokens, share, hold = struct.unpack('<I4I2I2', reservation)
  local remaining, a2, b2, c2 = algorithm.remaining(a, b, c, p1, p2, hold, now)
  local tokens = math.min(max_tokens, math.floor(remaining * share / RESERVATION_WHOLE))
  -- A few tokens are not worth holding: the quota is nearly used up.
  if tokens <= 0 or tokens < math.floor(max_tokens / 2) then
    return 0, a, b, c
  end
  return tokens, select(2, algorithm.apply(a2, b2, c2, tokens, p1, p2, nil, now, 1))
end

-- Decides a check of a record with the words a, b, c. Returns its new words, its part of the reply, 1 or 0 for whether it
-- was admitted, and the number of reserved tokens. passes: for a withheld check, 1 or 0 for whether it would have passed;
-- otherwise nil. is_charged: whether such a check is charged nevertheless.
local function decide_words(
  algorithm, is_short, a, b, c, times, hits, p1, p2, extra, only_passing, passes, is_charged
)
  local is_plain, charged_at = extra == '\0\0\0\0\0\0\0\0', nil
  if hits < 0 and not is_plain then
    charged_at = struct.unpack('<d', extra)
  end
  local requested, tokens = passes and not is_charged and 0 or hits, 0
  local admitted, a2, b2, c2 = algorithm.apply(a, b, c, requested, p1, p2, charged_at, now, times, only_passing)
  local result
  if times > 1 then
    result = struct.pack(is_short and '<I4I4' or '<I4I4I4', a, b, c)
  else
    result = struct.pack(is_short and '<BI4I4' or '<BI4I4I4', passes or admitted, a2, b2, c2)
  end
  if hits > 0 and not is_plain then
    if admitted == 1 and not passes then
      tokens, a2, b2, c2 = reserve(algorithm, a2, b2, c2, p1, p2, extra)
    end
    result = result .. struct.pack('<I4', tokens)
  end
  return a2, b2, c2, result, passes or admitted, tokens
end

-- Functions that not every command needs: make_fast_path is called on first use.
local fast_path
local function make_fast_path()
  -- The size of what follows the checks of an argument, and the positions of its shares by the number of their check, nil
  -- without any.
  local function read_tail(packed)
    local bans_at = #packed - COUNT_BYTES + 1
    local bans, shares_at = struct.unpack('<I2', packed, bans_at), bans_at - COUNT_BYTES
    if bans < HAS_SHARES then
      return bans * BAN_BYTES + COUNT_BYTES, nil
    end
    local count, positions = struct.unpack('<I2', packed, shares_at), {}
    for at = shares_at - count * SHARE_BYTES, shares_at - 1, SHARE_BYTES do
      positions[struct.unpack('<I2', packed, at)] = at + 2
    end
    return (bans - HAS_SHARES) * BAN_BYTES + count * SHARE_BYTES + 2 * COUNT_BYTES, positions
  end

  -- The id of the record of a counter's loans, of a kind: KIND_BORROWED or KIND_LENT.
  local function loan_id(id, kind)
    local last = string.byte(id, ID_BYTES)
    return string.sub(id, 1, ID_BYTES - 1) .. string.char(last - last % KINDS + kind)
  end

  -- The end of the window that a charge counts in, or of this second; loans of later ones do not count yet, those of earlier
  -- ones no more. a: the first word of the counter's state.
  local function label_of(kind, a, p2)
    if kind ~= KIND_FIXED_WINDOW and kind ~= KIND_SLIDING_WINDOW then
      return now.s + 1
    end
    local window = math.abs(p2) % SLIDING_SINCE_UNIT
    local ends = now.s - now.s % window + window
    local last = kind == KIND_SLIDING_WINDOW and a - window or a
    if last <= ends then
      return ends
    end
    return last <= ends + 4 * window and last or ends + window
  end

  -- The limit of a region with loans: its share, the one at a position of an argument, with what it has borrowed and
  -- without what it has lent. Returns it, and the algorithm's first parameter under it.
  local function effective_limit(packed, position, kind, borrowed, lent)
    local base, limit, refill = struct.unpack('<I4I4d', packed, position)
    local effective = math.min(math.max(base + borrowed - lent, 0), limit)
    if kind ~= KIND_TOKEN_BUCKET then
      return effective, effective
    end
    return effective, effective > 0 and math.ceil(refill / effective) or 0
  end

  -- A check's part of the reply, with the limit of its region.
  local function with_share(result, times, effective)
    if not effective then
      return times > 1 and result .. '\0' or result
    end
    if times > 1 then
      return result .. struct.pack('<BI4', 1, effective)
    end
    return string.char(string.byte(result) + REPLY_HAS_LOANS) .. string.sub(result, 2) .. struct.pack('<I4', effective)
  end

  -- The position of an id among those of a cell without segments, as a byte of the cell, or nil.
  local function find_id(raw, id, states)
    local found = CELL_HEADER_BYTES
    -- A match may straddle two ids.
    while found and (found == CELL_HEADER_BYTES or (found - CELL_HEADER_BYTES - 1) % ID_BYTES > 0) do
      found = string.find(raw, id, found + 1, true)
    end
    return found and found <= states and found or nil
  end

  -- The number of records of a cell, if any, that has as many as are checked, and the second at which the last of them
  -- expires; nil for a cell of another form, the table of a key of another type, or a cell that is to become one.
  local function read_header(raw, count)
    if not raw then
      return count, 0
    elseif #raw >= CELL_HEADER_BYTES then
      local format, records, ends = struct.unpack('<BI2I4', raw)
      if format == PACKED_FORMAT and records >= count and records <= MAX_PACKED_RECORDS
        and #raw == CELL_HEADER_BYTES + records * (ID_BYTES + STATE_BYTES) then
        return records, ends
      end
    end
  end

  -- The hits of the loan of a kind, if there is one, that count at a label.
  local function loan_of(raw, id, kind, states, label)
    local found = find_id(raw, loan_id(id, kind), states)
    if found then
      local until_label, hits = struct.unpack('<I4I4', raw, states + 1 + (found - CELL_HEADER_BYTES - 1) / ID_BYTES * STATE_BYTES)
      return label <= until_label and hits or 0
    end
  end

  -- Returns the result of a call that checks counters of key i, each of them once; nil if the fast path does not apply. raw:
  -- the content of the key, if any. is_withheld: whether all charges pass or none; denied: of a second round of such a call,
  -- which charges nothing but denied checks of ROLE_VETO_COUNTED, the checks that the first one denied, by number.
  local function decide_records(i, times, raw, is_withheld, denied)
    local packed, tail_bytes, shares = ARGV[1 + i], 0, nil
    if string.byte(packed, CALL_BYTES + ID_BYTES + 1) >= ROLE_BEFORE_TAIL then
      tail_bytes, shares = read_tail(packed)
    end
    local count = (#packed - CALL_BYTES - tail_bytes) / CHECK_BYTES
    local records, old_ends = read_header(raw, count)
    if not records then
      return nil
    end
    -- If the cell has more records than are checked, only the changed ones are patched.
    local has_more, states = records > count, CELL_HEADER_BYTES + records * ID_BYTES
    local last_end, patched = has_more and old_ends or 0, raw
    local outcomes, ids, kept, changed, new_denied, is_vetoed = {}, {}, {}, false, denied or {}, false
    for at = 0, count - 1 do
      local id, role, hits, p1, p2, extra = struct.unpack('<c6Bdddc8', packed, CALL_BYTES + 1 + at * CHECK_BYTES)
      local kind = string.byte(id, ID_BYTES) % KINDS
      local is_short, algorithm = kind < KIND_OF_THREE_WORDS, algorithm_of(kind)
      local layout = is_short and '<I4I4' or '<I4I2I2'
      local a, b, c, place = 0, 0, 0, at
      -- A counter that is checked twice needs the general path.
      if not algorithm or ids[id] then
        return nil
      end
      if is_withheld and (role ~= ROLE_VETO and role ~= ROLE_NO_VETO and role ~= ROLE_VETO_COUNTED
          or hits < 0 or extra ~= '\0\0\0\0\0\0\0\0') then
        return nil
      end
      ids[id] = true
      if raw then
        local found = CELL_HEADER_BYTES + 1 + at * ID_BYTES
        if string.sub(raw, found, found + ID_BYTES - 1) ~= id then
          found = has_more and find_id(raw, id, states) or nil
        end
        if not found or found > states then
          return nil
        end
        place = (found - CELL_HEADER_BYTES - 1) / ID_BYTES
        a, b, c = struct.unpack(layout, raw, states + 1 + place * STATE_BYTES)
        c = is_short and 0 or c
      end
      local effective = nil
      if shares and shares[at] and has_more then
        local label = label_of(kind, a, p2)
        local borrowed, lent = loan_of(raw, id, KIND_BORROWED, states, label), loan_of(raw, id, KIND_LENT, states, label)
        -- A bucket prolongs what it has lent.
        if lent and kind == KIND_TOKEN_BUCKET then
          return nil
        elseif borrowed or lent then
          effective, p1 = effective_limit(packed, shares[at], kind, borrowed or 0, lent or 0)
        end
      end
      local passes, is_charged = nil, false
      if denied then
        passes, is_charged = denied[at] and 0 or 1, role == ROLE_VETO_COUNTED and denied[at]
      end
      local only_passing = role % ROLE_BEFORE_TAIL == ROLE_PASSING_ONLY or is_withheld and not is_charged
      local a2, b2, c2, result, admitted =
        decide_words(algorithm, is_short, a, b, c, times, hits, p1, p2, extra, only_passing, passes, is_charged)
      if is_withheld and admitted == 0 then
        new_denied[at], is_vetoed = true, is_vetoed or role ~= ROLE_NO_VETO
      end
      if role >= ROLE_HAS_BAN then
        -- A denial makes a record of bans.
        if admitted == 0 then
          return nil
        end
        result = times > 1 and result .. '\0' or result
      end
      if shares and shares[at] then
        result = with_share(result, times, effective)
      end
      local ends = algorithm.ends_at(a2, b2, c2)
      -- The state may overflow its size, or the record may have been the last to expire.
      if not is_short and math.max(b2, c2) > 65535
        or has_more and ends < old_ends and algorithm.ends_at(a, b, c) >= old_ends then
        return nil
      end
      if (raw or ends > now.s) and (denied or not is_vetoed) then
        local state, has_changed = struct.pack(layout, a2, b2, c2), a2 ~= a or b2 ~= b or c2 ~= c
        changed, last_end = changed or has_changed, math.max(last_end, ends)
        if not has_more then
          ids[#ids + 1], kept[#kept + 1] = id, state
        elseif has_changed then
          local from = states + place * STATE_BYTES
          patched = string.sub(patched, 1, from) .. state .. string.sub(patched, from + STATE_BYTES + 1)
        end
      end
      outcomes[at + 1] = result
    end
    if is_vetoed and not denied then
      return decide_records(i, times, raw, true, new_denied)
    end
    if changed then
      local body
      if has_more then
        body = string.sub(patched, CELL_HEADER_BYTES + 1)
      else
        records, body = #ids, table.concat(ids) .. table.concat(kept)
      end
      write_cell(i, struct.pack('<BI2I4', PACKED_FORMAT, records, last_end) .. body, last_end, old_ends)
    end
    return table.concat(outcomes)
  end

  return {
    decide_records = decide_records,
    read_tail = read_tail,
    loan_id = loan_id,
    label_of = label_of,
    effective_limit = effective_limit,
    with_share = with_share,
  }
end
