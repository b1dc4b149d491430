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
-- restored without one. Returns whether it did: not if the key, which is_absent says is missing, exists with another type.
local last_ends, expiry
local function write_cell(i, raw, ends, old_ends, is_absent)
  local key = KEYS[i]
  if ends == old_ends and now.us % 16 ~= 0 and ends > now.s then
    redis.call('SET', key, raw, 'KEEPTTL')
  elseif ends <= now.s then
    redis.call('DEL', key)
    raw = false
  else
    if ends ~= last_ends then
      -- Numbers as arguments are expensive too.
      last_ends, expiry = ends, now.given and '3600000' or string.format('%d000', ends)
    end
    if is_absent then
      if not redis.call('SET', key, raw, now.given and 'PX' or 'PXAT', expiry, 'NX') then
        return false
      end
    else
      redis.call('SET', key, raw, now.given and 'PX' or 'PXAT', expiry)
    end
  end
  if written then
    written[key] = raw
  end
  return true
end
