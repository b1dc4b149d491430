-- Reads and writes of cells.

-- For several calls: the content of each of KEYS when the script began, false for none or for a value that is not a
-- string; and the content written since, false for none, a table for a hash. Calls may share a key.
local read, written

-- The current packed cell at key i; nil or false for a missing one; or a table, the error of a key of another type, such
-- as a segmented cell, or the table in `written`.
local function read_cell(i)
  local raw = written and written[KEYS[i]]
  if raw == nil then
    -- Only GET distinguishes a key of another type from a missing one.
    raw = read and read[i] or redis.pcall('GET', KEYS[i])
    if across_slots and type(raw) == 'table' and not string.find(raw.err, 'WRONGTYPE', 1, true) then
      error(raw)
    end
  end
  return raw
end

-- Stores a cell at key i until its expiry, or deletes the key if that has passed. Setting an expiry is expensive in
-- Redis, so the present one is retained if it is unchanged. One write in 16 sets it anyway, for a key that was
-- restored without one.
local function write_cell(i, raw, ends, old_ends)
  local micros = (ends - now.s) * 1000000 - now.us
  if micros <= 0 then
    redis.call('DEL', KEYS[i])
    raw = false
  elseif ends == old_ends and now.us % 16 ~= 0 then
    redis.call('SET', KEYS[i], raw, 'KEEPTTL')
  else
    redis.call('SET', KEYS[i], raw, 'PX', now.given and 3600000 or math.ceil(micros / 1000))
  end
  if written then
    written[KEYS[i]] = raw
  end
end
