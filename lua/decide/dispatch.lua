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

-- Decides the calls from the first key that is left, as far as the fast path has them. The decision on a single counter,
-- alone in its cell, is inline: it costs little more than its calls of functions and the strings it creates.
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
    local is_single = algorithm
      and (is_plain and #packed == 43 or has_ban and #packed == 69 or role == 11 and #packed == 65)
    if is_single then
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
    elseif algorithm and (is_plain or has_ban or role == 8 or role == 11) then
      fast_path = fast_path or make_fast_path()
      result = fast_path.decide_several(i, times, raw)
    elseif algorithm and (role == 1 or role == 2 or role == 6) and times == 1 then
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
