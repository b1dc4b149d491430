-- Splits the input into calls, and decides those that fit the fast path. Definitions for the others follow below.
local reply, place = { struct.pack('<I4I4', now.s, now.us), false }, 1
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

local first = 1
while first <= #KEYS do
  local keys, times = struct.unpack('<I2I2', ARGV[1 + first])
  if keys == 0 then
    error('a call without keys')
  end
  place = place + 1
  local fine, outcome = true, nil
  if keys == 1 and not (deferred and deferred_keys[KEYS[first]]) then
    if one_call then
      outcome = decide_fast(first, times)
    else
      fine, outcome = pcall(decide_fast, first, times)
    end
  end
  if not fine then
    outcome = failure(outcome)
  elseif not outcome then
    deferred, deferred_keys = deferred or {}, deferred_keys or {}
    deferred[#deferred + 1] = { first = first, last = first + keys - 1, times = times, place = place }
    for i = first, first + keys - 1 do
      deferred_keys[KEYS[i]] = true
    end
  end
  reply[place] = outcome or false
  first = first + keys
end
if not deferred then
  return failed and reply or table.concat(reply)
end
