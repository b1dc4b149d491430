-- Reads and writes of cells.

-- Whether the present call has written, apart from a command that is its last: an error may then leave it half applied.
local half_written = false

-- Executes a command that writes, and is not the last of its call.
local function write_command(...)
  redis.call(...)
  half_written = true
end

-- The current packed cell at key i; false for a missing one; or a table, the error of a key of another type, such as a
-- segmented cell.
local function read_cell(i)
  local raw = redis.pcall('GET', KEYS[i])
  if type(raw) == 'table' and not string.find(raw.err, 'WRONGTYPE', 1, true) then
    -- Raises the error.
    return redis.call('GET', KEYS[i])
  end
  return raw
end

-- Stores a cell at key i until its expiry, or deletes the key if that has passed.
local last_ends, expiry
local function write_cell(i, raw, ends, old_ends)
  local key = KEYS[i]
  if ends <= now.s then
    redis.call('DEL', key)
  elseif ends == old_ends and not sets_expiry then
    redis.call('SET', key, raw, 'KEEPTTL')
  else
    if ends ~= last_ends then
      -- Numbers as arguments are expensive too.
      last_ends, expiry = ends, now.given and '3600000' or string.format('%d000', ends)
    end
    redis.call('SET', key, raw, now.given and 'PX' or 'PXAT', expiry)
  end
end
