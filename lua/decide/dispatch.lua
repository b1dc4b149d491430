-- Takes the calls apart, and decides those that are the usual case. What the others need is defined below it.
local reply, place = { struct.pack('<I4I4', now.s, now.us), false }, 1
local one_call = struct.unpack('<I2', ARGV[2]) == #KEYS
if not one_call then
  -- More arguments than that may be too many for Lua.
  read, written = #KEYS <= 1000 and redis.call('MGET', unpack(KEYS)) or {}, {}
end

-- The calls that are left, {first = its first key, last = its last one, times, place = in the reply}; and their keys,
-- of which nothing may be decided before them.
local left, left_keys

-- What stands in the reply for an error. Redis gives its own errors as text before version 7.
local failed = false
local function failure(problem)
  failed = true
  local text = type(problem) == 'table' and problem.err or problem
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
  if keys == 1 and not (left and left_keys[KEYS[first]]) then
    if one_call then
      outcome = decide_usual(first, times)
    else
      fine, outcome = pcall(decide_usual, first, times)
    end
  end
  if not fine then
    outcome = failure(outcome)
  elseif not outcome then
    left, left_keys = left or {}, left_keys or {}
    left[#left + 1] = { first = first, last = first + keys - 1, times = times, place = place }
    for i = first, first + keys - 1 do
      left_keys[KEYS[i]] = true
    end
  end
  reply[place] = outcome or false
  first = first + keys
end
if not left then
  return failed and reply or table.concat(reply)
end
