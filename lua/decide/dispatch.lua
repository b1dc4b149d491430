-- Splits the input into calls, and decides those that fit the fast path. Definitions for the others follow below.
local reply, place = { struct.pack('<I4I4', now.s, now.us), nil }, 1
local one_call = struct.unpack('<I2', ARGV[2]) == #KEYS
if not one_call then
  -- More arguments may exceed Lua's stack.
  local are_read = not across_slots and #KEYS <= 1000
  read, written = are_read and redis.call('MGET', unpack(KEYS)) or {}, {}
end

-- The deferred calls, {first = the first key, last = the last one, times, place = position in the reply}; and their
-- keys: later calls on these are deferred too, to preserve the order.
local deferred, deferred_keys

-- Whether an error of the call being decided may come after a part of its writes.
local half_written = false

-- An error as an element of the reply. Redis before version 7 gives its own errors as text. Across slots, an error without
-- the mark shows that a call had no effect, so that it may be sent again.
local failed = false
local function failure(problem)
  failed = true
  local text = type(problem) == 'table' and problem.err or problem
  if across_slots and half_written then
    text = 'ERR half written: ' .. text
  end
  return { err = string.find(text, '^%u+ ') and text or 'ERR ' .. text }
end

-- Leaves a call to the parts below.
local function defer(from, to, times)
  deferred, deferred_keys = deferred or {}, deferred_keys or {}
  deferred[#deferred + 1] = { first = from, last = to, times = times, place = place }
  for i = from, to do
    deferred_keys[KEYS[i]] = true
  end
end

-- Decides the calls from the first key that is left, as far as the fast path has them. Decisions on a single counter, alone in
-- its cell, and on two or three that are all of their cell, in its order, are inline: they cost little more than their calls of
-- functions and the strings they create. The latter may charge all or none.
local first = 1
local function decide_calls()
  local KEYS, ARGV, pack, unpack, call, s = KEYS, ARGV, struct.pack, struct.unpack, redis.call, now.s
  local sets_expiry = now.us % 16 == 0
  while first <= #KEYS do
    local i, packed, key, result, raw, is_absent = first, ARGV[1 + first], KEYS[first], nil, nil, nil
    local keys, times, id, last_byte, role, hits, p1, p2, extra = unpack('<I2I2I5BBdddI8', packed)
    if keys == 0 then
      error('a call without keys')
    end
    first, place = i + keys, place + 1
    local kind, algorithm = last_byte % 16, nil
    local is_plain, has_ban = role == 0 or role == 3, role == 128 or role == 131
    if keys == 1 and not (deferred and deferred_keys[key]) then
      algorithm = ALGORITHMS[kind] or algorithm_of(kind)
    end
    local size = #packed
    local is_single = algorithm
      and (is_plain and size == 43 or has_ban and size == 69 or role == 11 and size == 65)
    local is_pair = algorithm and (role < 4 or role == 6) and size == 82
    local are_few = is_pair or algorithm and (role < 4 or role == 6) and size == 121
    if is_single or are_few then
      raw = written and written[key]
      if raw == nil then
        raw = read and read[i]
        -- Or it has another type, which a write finds out.
        is_absent = raw == false
        if raw == nil then
          raw = read_cell(i)
        end
      end
    end
    if are_few and (not raw or #raw == (is_pair and 35 or 49)) then
      local old_ends, matches = 0, nil
      local id2, last2, role2, hits2, p21, p22, extra2
      local id3, last3, role3, hits3, p31, p32, extra3
      -- Kinds with three words have the last two in one number.
      local a1, b1, c1, a2, b2, c2, a3, b3, c3 = 0, 0, 0, 0, 0, 0, 0, 0, 0
      if is_pair then
        id2, last2, role2, hits2, p21, p22, extra2 = unpack('<I5BBdddI8', packed, 44)
        role3, hits3, extra3 = role2, hits2, 0
      else
        id2, last2, role2, hits2, p21, p22, extra2, id3, last3, role3, hits3, p31, p32, extra3 =
          unpack('<I5BBdddI8I5BBdddI8', packed, 44)
      end
      if raw then
        local format, count, k1, l1, k2, l2, k3, l3
        if is_pair then
          format, count, old_ends, k1, l1, k2, l2, a1, b1, a2, b2 = unpack('<BI2I4I5BI5BI4I4I4I4', raw)
          matches = count == 2
        else
          format, count, old_ends, k1, l1, k2, l2, k3, l3, a1, b1, a2, b2, a3, b3 =
            unpack('<BI2I4I5BI5BI5BI4I4I4I4I4I4', raw)
          matches = count == 3 and k3 == id3 and l3 == last3
        end
        matches = matches and format == 1 and k1 == id and l1 == last_byte and k2 == id2 and l2 == last2
      else
        matches = (id ~= id2 or last_byte ~= last2)
          and (is_pair or (id3 ~= id or last3 ~= last_byte) and (id3 ~= id2 or last3 ~= last2))
      end
      local kind2, kind3 = last2 % 16, is_pair and 0 or last3 % 16
      local algorithm2 = ALGORITHMS[kind2] or algorithm_of(kind2)
      local algorithm3 = is_pair or ALGORITHMS[kind3] or algorithm_of(kind3)
      local are_withheld = role == 1 or role == 2 or role == 6
      if are_withheld then
        -- A refund is not withheld.
        matches = matches and hits >= 0 and hits2 >= 0 and hits3 >= 0
          and (role2 == 1 or role2 == 2 or role2 == 6) and (role3 == 1 or role3 == 2 or role3 == 6)
      else
        matches = matches and (role2 == 0 or role2 == 3) and (role3 == 0 or role3 == 3)
      end
      -- Without reservations, and times of refunded charges.
      if matches and algorithm2 and algorithm3 and kind < 9 and kind2 < 9 and kind3 < 9
        and extra == 0 and extra2 == 0 and extra3 == 0
      then
        if kind == 8 then
          c1 = (b1 - b1 % 65536) / 65536
          b1 = b1 % 65536
        end
        if kind2 == 8 then
          c2 = (b2 - b2 % 65536) / 65536
          b2 = b2 % 65536
        end
        if kind3 == 8 then
          c3 = (b3 - b3 % 65536) / 65536
          b3 = b3 % 65536
        end
        local admitted1, x1, y1, z1 = algorithm.apply(a1, b1, c1, hits, p1, p2, nil, now, times, role ~= 0)
        local admitted2, x2, y2, z2 = algorithm2.apply(a2, b2, c2, hits2, p21, p22, nil, now, times, role2 ~= 0)
        local admitted3, x3, y3, z3 = 1, 0, 0, 0
        if not is_pair then
          admitted3, x3, y3, z3 = algorithm3.apply(a3, b3, c3, hits3, p31, p32, nil, now, times, role3 ~= 0)
        end
        if are_withheld
          and (role ~= 2 and admitted1 == 0 or role2 ~= 2 and admitted2 == 0 or role3 ~= 2 and admitted3 == 0)
        then
          -- Role 6 counts its own denied hits.
          local _
          local n1 = role == 6 and admitted1 == 0 and hits or 0
          local n2 = role2 == 6 and admitted2 == 0 and hits2 or 0
          _, x1, y1, z1 = algorithm.apply(a1, b1, c1, n1, p1, p2, nil, now, 1, n1 == 0)
          _, x2, y2, z2 = algorithm2.apply(a2, b2, c2, n2, p21, p22, nil, now, 1, n2 == 0)
          if not is_pair then
            local n3 = role3 == 6 and admitted3 == 0 and hits3 or 0
            _, x3, y3, z3 = algorithm3.apply(a3, b3, c3, n3, p31, p32, nil, now, 1, n3 == 0)
          end
        end
        local ends1, ends2, ends3 = algorithm.ends_at(x1, y1, z1), algorithm2.ends_at(x2, y2, z2), nil
        local ends = ends1 > ends2 and ends1 or ends2
        if not is_pair then
          ends3 = algorithm3.ends_at(x3, y3, z3)
          ends = ends3 > ends and ends3 or ends
        end
        -- Counts may outgrow their size, and counters without charges have no records.
        if kind == 8 and (y1 > 65535 or z1 > 65535) or kind2 == 8 and (y2 > 65535 or z2 > 65535)
          or kind3 == 8 and (y3 > 65535 or z3 > 65535)
          or not raw and (ends1 <= s or ends2 <= s or not is_pair and ends3 <= s)
        then
          matches = false
        elseif times > 1 then
          result = pack(kind < 8 and '<I4I4' or '<I4I4I4', a1, b1, c1)
            .. pack(kind2 < 8 and '<I4I4' or '<I4I4I4', a2, b2, c2)
            .. (is_pair and '' or pack(kind3 < 8 and '<I4I4' or '<I4I4I4', a3, b3, c3))
        elseif kind < 8 and kind2 < 8 and kind3 < 8 then
          result = is_pair and pack('<BI4I4BI4I4', admitted1, x1, y1, admitted2, x2, y2)
            or pack('<BI4I4BI4I4BI4I4', admitted1, x1, y1, admitted2, x2, y2, admitted3, x3, y3)
        else
          result = pack(kind < 8 and '<BI4I4' or '<BI4I4I4', admitted1, x1, y1, z1)
            .. pack(kind2 < 8 and '<BI4I4' or '<BI4I4I4', admitted2, x2, y2, z2)
            .. (is_pair and '' or pack(kind3 < 8 and '<BI4I4' or '<BI4I4I4', admitted3, x3, y3, z3))
        end
        if matches and (x1 ~= a1 or y1 ~= b1 or z1 ~= c1 or x2 ~= a2 or y2 ~= b2 or z2 ~= c2
          or x3 ~= a3 or y3 ~= b3 or z3 ~= c3)
        then
          local w1, w2, w3 = y1 + z1 * 65536, y2 + z2 * 65536, y3 + z3 * 65536
          local cell = is_pair
              and pack('<BI2I4I5BI5BI4I4I4I4', 1, 2, ends, id, last_byte, id2, last2, x1, w1, x2, w2)
            or pack(
              '<BI2I4I5BI5BI5BI4I4I4I4I4I4', 1, 3, ends,
              id, last_byte, id2, last2, id3, last3, x1, w1, x2, w2, x3, w3
            )
          if ends == old_ends and ends > s and not sets_expiry then
            call('SET', key, cell, 'KEEPTTL')
            if written then
              written[key] = cell
            end
          else
            result = write_cell(i, cell, ends, old_ends, is_absent) and result
          end
        end
      end
    end
    if is_single and (not raw or #raw == 21) then
      local is_short, is_known, charged_at = kind < 8, true, nil
      local layout = is_short and '<BI2I4I5BI4I4' or '<BI2I4I5BI4I2I2'
      local a, b, c, old_ends = 0, 0, 0, 0
      if raw then
        local format, count, known, known_last
        format, count, old_ends, known, known_last, a, b, c = unpack(layout, raw)
        c = is_short and 0 or c
        is_known = known == id and known_last == last_byte and count == 1 and format == 1
      end
      if hits < 0 and extra ~= 0 then
        charged_at = unpack('<d', packed, 36)
      end
      local admitted, a2, b2, c2 =
        algorithm.apply(a, b, c, hits, p1, p2, charged_at, now, times, role % 4 == 3)
      if times > 1 then
        result = pack(is_short and '<I4I4' or '<I4I4I4', a, b, c)
      else
        result = pack(is_short and '<BI4I4' or '<BI4I4I4', admitted, a2, b2, c2)
      end
      if hits > 0 and extra ~= 0 then
        local tokens = 0
        if admitted == 1 then
          fast_path = fast_path or make_fast_path()
          tokens, a2, b2, c2 = fast_path.reserve(algorithm, a2, b2, c2, p1, p2, packed, 36)
        end
        result = result .. pack('<I4', tokens)
      end
      if times > 1 and not is_plain then
        result = result .. '\0'
      end
      -- A denial makes a record of bans, and counts may outgrow their size.
      if not is_known or has_ban and admitted == 0 or not is_short and (b2 > 65535 or c2 > 65535) then
        result = nil
      elseif a2 ~= a or b2 ~= b or c2 ~= c then
        local ends = algorithm.ends_at(a2, b2, c2)
        local cell = pack(layout, 1, 1, ends, id, last_byte, a2, b2, c2)
        if ends == old_ends and ends > s and not sets_expiry then
          call('SET', key, cell, 'KEEPTTL')
          if written then
            written[key] = cell
          end
        elseif raw or ends > s then
          result = write_cell(i, cell, ends, old_ends, is_absent) and result
          is_absent = false
        end
      end
      if is_absent and read_cell(i) then
        result = nil
      end
    elseif not result and algorithm and (is_plain or has_ban or role == 8 or role == 11) then
      fast_path = fast_path or make_fast_path()
      result = fast_path.decide_several(i, times, raw)
    elseif not result and algorithm and (role == 1 or role == 2 or role == 6) and times == 1 then
      fast_path = fast_path or make_fast_path()
      result = fast_path.decide_together(i, raw)
    end
    if not result then
      defer(i, first - 1, times)
    end
    reply[place] = result or false
  end
end

if one_call then
  decide_calls()
else
  while first <= #KEYS do
    local fine, problem = pcall(decide_calls)
    -- Without a place for it, no call failed, but the input is malformed.
    if not fine and reply[place] ~= nil then
      error(problem)
    elseif not fine then
      reply[place] = failure(problem)
    end
  end
end
if not deferred then
  return failed and reply or table.concat(reply)
end
