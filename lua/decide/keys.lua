-- The cells that keys hold.

-- Where there are several calls: what each of KEYS had when the script began, false for nothing or what is no string;
-- and what keys were given since, false for nothing. Calls may have a key in common.
local read, written

-- The cell at key i as it is now, or nil or false.
local function read_cell(i)
  local raw = written and written[KEYS[i]]
  if raw == nil then
    -- Only the latter tells a key of another type from none.
    raw = read and read[i] or redis.call('GET', KEYS[i])
  end
  return raw
end

-- Has key i hold a cell until its end, which was another one before, or hold nothing where that is over. It costs
-- Redis much to set an expiry, so the one that is there is kept if the end is the same. One of these in 16 is set all
-- the same, for a key that somebody restored without one.
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
