-- Takes the calls apart, and decides those that are the usual case. What the others need is defined below it, so that
-- Redis need not run that for nothing.
local now = time_of(ARGV[1])
local reply = { struct.pack('<I4I4', now.s, now.us) }

-- The calls that are left, {first = its first key, last = its last one, times, place = in the reply}; and their keys,
-- of which nothing may be decided before them.
local left, left_keys = {}, {}

local function leave(first, last, times, place)
  left[#left + 1] = { first = first, last = last, times = times, place = place }
  for i = first, last do
    left_keys[KEYS[i]] = true
  end
end

-- What stands in the reply for an error. Redis gives its own errors as text before version 7.
local function failure(problem)
  local text = type(problem) == 'table' and problem.err or problem
  return { err = string.find(text, '^%u+ ') and text or 'ERR ' .. text }
end

local one_call = struct.unpack(CALL, ARGV[2]) == #KEYS
if not one_call and #KEYS <= MOST_ARGUMENTS then
  read = redis.call('MGET', unpack(KEYS))
end
local first = 1
while first <= #KEYS do
  local keys, times = struct.unpack(CALL, ARGV[1 + first])
  local place, fine, outcome = #reply + 1, true, nil
  if keys == 1 and not left_keys[KEYS[first]] then
    if one_call then
      outcome = decide_usual(first, times, now)
    else
      fine, outcome = pcall(decide_usual, first, times, now)
    end
  end
  if not outcome then
    leave(first, first + keys - 1, times, place)
  end
  -- A place that is not filled yet would be the next one's.
  reply[place] = fine and (outcome or '') or failure(outcome)
  first = first + keys
end
if #left == 0 then
  return reply
end
