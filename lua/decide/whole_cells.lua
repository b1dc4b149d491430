-- Decides calls on all counters of one cell, in its order and each in an ordinary state: most calls of most servers. Stands
-- before all definitions, and defines no functions, since these cost more than such a decision. The algorithms are those of
-- fixed_window.lua, sliding_window.lua and token_bucket.lua; any other case is left to them.
-- Without this part, such calls take 1.2 to 1.4 times as much of Redis' processor.

-- The reply; false for a call that is left.
local reply = { struct.pack('<I4I4', now.s, now.us), nil }

-- The keys of the calls that are left: later calls on these are left too, to preserve the order.
local left
do
  local KEYS, ARGV, pack, unpack, sub, try = KEYS, ARGV, struct.pack, struct.unpack, string.sub, redis.pcall
  local s, us, floor, last_written, expiry = now.s, now.us, math.floor, nil, nil
  -- Whether the user has the permission for SETRANGE, which costs Redis half as much as to store another string.
  local may_patch = true
  -- Properties of the last argument, which the calls of a rule have in common: the size of its cells, with the first bytes
  -- and those of the ids, and the position of the states.
  local known, keys, times, count, is_plain, is_withheld, has_ban, cell_size, head, ids, position
  -- Its check, or if there are more, the present one, and all of them, a row of values for each. Of windows: the end of this
  -- one and of the next one, and the weight of the previous one; of buckets: the part of the state that is its size.
  local id, role, hits, limit, window, most, share, hold, kind, ends
  local following, weight, steps, size = 0, 0, 0, 0
  local checks
  local ROW = 12
  local i, place = 1, 1
  while i <= #KEYS do
    local packed, key, result = ARGV[1 + i], KEYS[i], nil
    if packed ~= known then
      known = packed
      keys, times, id, role = unpack('<I2I2I6B', packed)
      has_ban, is_withheld = role == ROLE_HAS_BAN or role == ROLE_HAS_BAN + ROLE_PASSING_ONLY,
        role == ROLE_VETO or role == ROLE_NO_VETO or role == ROLE_VETO_COUNTED
      local has_one = has_ban and #packed == ONE_BANNED_CHECK_BYTES or role == ROLE_SHARED and #packed == ONE_SHARED_CHECK_BYTES
      count = has_one and 1 or (#packed - CALL_BYTES) / CHECK_BYTES
      is_plain = keys == 1 and count % 1 == 0 and count < 17 and (times == 1 or not is_withheld)
      head, ids, cell_size = PACKED_FORMAT + count * 256, nil, CELL_HEADER_BYTES + count * (ID_BYTES + STATE_BYTES)
      position = tostring(CELL_HEADER_BYTES + count * ID_BYTES)
      checks = is_plain and (count > 1 or is_withheld) and (checks or {}) or nil
      for at = 1, is_plain and count or 0 do
        local from = CALL_BYTES + 1 - CHECK_BYTES + at * CHECK_BYTES
        id, role, hits, limit, window, most, share, hold = unpack('<I6BdddI4I2I2', packed, from)
        -- The last of the bytes of the id.
        kind = floor(id / ID_KIND_UNIT) % KINDS
        is_plain = is_plain and hits > 0 and (most > 0 or share + hold == 0)
          and (kind == KIND_FIXED_WINDOW or window > 0
            and (kind == KIND_TOKEN_BUCKET and limit > 0 or kind == KIND_SLIDING_WINDOW and window < SLIDING_SINCE_UNIT))
        if is_withheld then
          is_plain = is_plain and (role == ROLE_VETO or role == ROLE_NO_VETO or role == ROLE_VETO_COUNTED)
            and most + share + hold == 0
        elseif role ~= ROLE_INDEPENDENT and role ~= ROLE_PASSING_ONLY then
          is_plain = is_plain and count == 1 and (has_ban or role == ROLE_SHARED)
        end
        if is_plain and kind == KIND_TOKEN_BUCKET then
          local room = BUCKET_MIN_SIZE
          size = 0
          while room < window do
            size, room = size + 2 * BUCKET_SIZE_UNIT, room * 4
          end
        elseif is_plain and window < 0 then
          -- The windows of a calendar, see fixed_window.lua.
          local rest = -window % CALENDAR_BOUND_UNIT
          local middle, unit = (-window - rest) / CALENDAR_BOUND_UNIT, floor(rest / CALENDAR_PERIOD_UNIT)
          local shortest = unit == 0 and 0 or unit == 1 and 480 or unit == 2 and 2592 or 34944
          local starts = middle
            - (shortest + floor(rest % CALENDAR_PERIOD_UNIT / CALENDAR_LENGTH_UNIT)) * CALENDAR_QUARTER
          ends = middle + (shortest + rest % CALENDAR_LENGTH_UNIT) * CALENDAR_QUARTER
          is_plain = s >= starts and s < ends
          ends = s < middle and middle or ends
        elseif is_plain then
          ends = s - s % window + window
          if kind == KIND_SLIDING_WINDOW then
            local step = math.ceil(window * 1000000 / SLIDING_STEPS)
            following, steps = ends + window, floor(window * 1000000 / step)
            weight = math.min(math.ceil(((ends - s) * 1000000 - us) / step), steps)
          end
        end
        if checks then
          local row = at * ROW - ROW
          checks[row + 1], checks[row + 2], checks[row + 3], checks[row + 4] = role, hits, limit, window
          checks[row + 5], checks[row + 6], checks[row + 7] = kind, ends, kind == KIND_TOKEN_BUCKET and size or following
          checks[row + 8], checks[row + 9], checks[row + 10] = weight, steps, most
          checks[row + 11], checks[row + 12] = share, hold
          ids = ids and ids .. sub(packed, from, from + ID_BYTES - 1) or sub(packed, from, from + ID_BYTES - 1)
        end
      end
    end
    place = place + 1
    if is_plain and not (left and left[key]) then
      local raw, old_end, last_end, is_ordinary = try('GET', key), 0, 0, nil
      local a, b, c, state_at = 0, 0, 0, CELL_HEADER_BYTES + 1 + count * ID_BYTES
      if not raw then
        is_ordinary = true
        for at = 2, checks and count or 1 do
          -- A counter may be checked twice.
          is_ordinary = is_ordinary and string.find(ids, sub(ids, 1 - ID_BYTES + at * ID_BYTES, at * ID_BYTES), 1, true)
            == 1 - ID_BYTES + at * ID_BYTES
        end
      elseif #raw == cell_size and not checks then
        local start, of
        start, old_end, of, a, b, c = unpack(kind == KIND_SLIDING_WINDOW and '<I3I4I6I4I2I2' or '<I3I4I6I4I4', raw)
        is_ordinary = start == ONE_RECORD_HEAD and of == id
      elseif #raw == cell_size then
        local start
        start, old_end = unpack('<I3I4', raw)
        is_ordinary = start == head and sub(raw, CELL_HEADER_BYTES + 1, state_at - 1) == ids
      end
      -- The states of all checks, and whether one has changed; which withheld ones are denied; and whether this is a second
      -- round, which charges none of them but denied ones of role 6.
      local states, has_changed, denied, is_vetoed, at = nil, false, nil, false, 1
      while is_ordinary and at <= count do
        if checks then
          local row = at * ROW - ROW
          role, hits, limit, window = checks[row + 1], checks[row + 2], checks[row + 3], checks[row + 4]
          kind, ends, following = checks[row + 5], checks[row + 6], checks[row + 7]
          size, weight, steps = following, checks[row + 8], checks[row + 9]
          most, share, hold = checks[row + 10], checks[row + 11], checks[row + 12]
          if raw then
            a, b, c = unpack(kind == KIND_SLIDING_WINDOW and '<I4I2I2' or '<I4I4', raw, state_at)
            state_at = state_at + STATE_BYTES
          end
          if is_vetoed then
            hits = role == ROLE_VETO_COUNTED and denied[at] and hits or 0
          end
        end
        local counts_denied = role == ROLE_INDEPENDENT or role == ROLE_HAS_BAN or is_vetoed
        -- The hits of this window and of the one before, or the ticks that are owed; the repetitions that pass; and the tokens
        -- that are left.
        local used, before, passing, room = b, 0, times, nil
        if kind == KIND_FIXED_WINDOW then
          c = 0
          if a ~= ends then
            used, is_ordinary = 0, a <= s
          end
          if used + hits * times > limit and not counts_denied then
            passing = limit > used and hits > 0 and floor((limit - used) / hits) or 0
          end
          used = used + hits * passing
          room = limit - used
        elseif kind == KIND_SLIDING_WINDOW then
          before = c
          if a == ends then
            used, before = 0, b
          elseif a ~= following then
            used, before, is_ordinary = 0, 0, a <= s
          end
          room = limit - used - (before > 0 and floor(before * weight / steps) or 0)
          if hits * times > room then
            passing = room > 0 and hits > 0 and floor(room / hits) or 0
          end
          used, room = used + hits * passing, room - hits * passing
        else
          c = 0
          local ticks = b % BUCKET_SIZE_UNIT
          used = (a - s) * BUCKET_TICKS_PER_SECOND + ticks - us * BUCKET_TICKS_PER_MICRO
          if used <= 0 then
            used, is_ordinary = 0, hits > 0
          elseif used > window or b - ticks ~= size then
            is_ordinary = false
          end
          if used + limit * hits * times > window then
            passing = floor((window - used) / (limit * hits))
          end
          used = used + limit * hits * passing
          room = 0
        end
        local passes, tokens, reserves = passing == times and room >= 0, 0, most > 0
        if reserves and passes then
          if kind == KIND_TOKEN_BUCKET then
            room = floor((window - (used > hold * BUCKET_TICKS_PER_MILLI and used or hold * BUCKET_TICKS_PER_MILLI)) / limit)
          end
          tokens = floor(room * share / RESERVATION_WHOLE)
          tokens = tokens < most and tokens or most
          tokens = tokens > 0 and tokens >= floor(most / 2) and tokens or 0
        end
        -- The state that is replied, and the new one, which has the tokens, with its end.
        local a1, b1, a2, b2, until_second = ends, used, ends, used + tokens, ends
        if kind == KIND_FIXED_WINDOW then
          b1, b2 = b1 < 4294967295 and b1 or 4294967295, b2 < 4294967295 and b2 or 4294967295
        elseif kind == KIND_SLIDING_WINDOW then
          a1, a2, until_second = following, following, following
          is_ordinary = is_ordinary and b2 < 65536 and before < 65536
        elseif passing > 0 then
          local full = us * BUCKET_TICKS_PER_MICRO + used
          local rest = full % BUCKET_TICKS_PER_SECOND
          a1, b1 = s + (full - rest) / BUCKET_TICKS_PER_SECOND, rest + size
          if tokens > 0 then
            full = us * BUCKET_TICKS_PER_MICRO + tokens * limit
              + (used > hold * BUCKET_TICKS_PER_MILLI and used or hold * BUCKET_TICKS_PER_MILLI)
            rest = full % BUCKET_TICKS_PER_SECOND
          end
          a2, b2 = s + (full - rest) / BUCKET_TICKS_PER_SECOND, rest + size
          until_second = rest > 0 and a2 + 1 or a2
        else
          a1, b1, a2, b2, is_ordinary = a, b, a, b, is_ordinary and used > 0
          until_second = b % BUCKET_SIZE_UNIT > 0 and a + 1 or a
        end
        is_ordinary = is_ordinary and until_second < 4294967296
        -- A counter without charges has no record, and a denial makes one of bans.
        is_ordinary = is_ordinary and (b2 > 0 or before > 0) and (passes or not has_ban)
        if is_vetoed then
          passes = not denied[at]
        elseif is_withheld and not passes then
          denied = denied or {}
          denied[at] = true
        end
        if a2 ~= a or b2 ~= b or before ~= c then
          has_changed = true
        end
        local part
        if times > 1 then
          part = kind == KIND_SLIDING_WINDOW and pack('<I4I4I4', a, b, c) or pack('<I4I4', a, b)
        else
          part = kind == KIND_SLIDING_WINDOW and pack('<BI4I4I4', passes and REPLY_ADMITTED or 0, a1, b1, before)
            or pack('<BI4I4', passes and REPLY_ADMITTED or 0, a1, b1)
        end
        if reserves then
          part = part .. pack('<I4', tokens)
        end
        result = result and result .. part or part
        if has_changed or checks then
          local state = kind == KIND_SLIDING_WINDOW and pack('<I4I2I2', a2, b2, before) or pack('<I4I4', a2, b2)
          states = states and states .. state or state
        end
        last_end = until_second > last_end and until_second or last_end
        at = at + 1
        if at > count and denied and not is_vetoed then
          for other in pairs(denied) do
            is_vetoed = is_vetoed or checks[other * ROW - ROW + 1] ~= ROLE_NO_VETO
          end
          if is_vetoed then
            result, states, has_changed, last_end, at, state_at = nil, nil, false, 0, 1, CELL_HEADER_BYTES + 1 + count * ID_BYTES
          end
        end
      end
      if not is_ordinary then
        result = nil
      elseif times > 1 and role >= ROLE_BEFORE_TAIL then
        result = result .. '\0'
      end
      if result and has_changed then
        local is_patched = false
        if may_patch and last_end == old_end and not sets_expiry then
          is_patched = try('SETRANGE', key, position, states) == cell_size
          may_patch = is_patched
        end
        if not is_patched then
          if last_end ~= last_written then
            -- Numbers as arguments are expensive too.
            last_written, expiry = last_end, now.given and '3600000' or string.format('%d000', last_end)
          end
          local cell = pack('<I3I4', head, last_end) .. (ids or sub(packed, CALL_BYTES + 1, CALL_BYTES + ID_BYTES)) .. states
          -- A write that fails here fails again below, which reports it.
          result = not try('SET', key, cell, now.given and 'PX' or 'PXAT', expiry).err and result
        end
      end
    end
    if not result then
      left = left or {}
      for n = i, math.min(i + keys - 1, #KEYS) do
        left[KEYS[n]] = true
      end
    end
    reply[place] = result or false
    i = i + (keys > 0 and keys or #KEYS)
  end
end
if not left then
  return table.concat(reply)
end
