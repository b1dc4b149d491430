-- Sums of reported utilization, shared by the instances: the twin of `SharedSums::add`.
--
-- KEYS[1]  the sums of one rule: a text of nine numbers
-- ARGV     half-life in microseconds, time to live in milliseconds, and what is added: weight, utilization, passed,
--          and the requests of each priority; then the time in microseconds, which only tests set
-- Returns the microseconds since the last report (-1 if there was none), and the sums, as texts.

local half_life, ttl = tonumber(ARGV[1]), ARGV[2]
local now = tonumber(ARGV[10])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

local stored = {}
for number in string.gmatch(redis.call('GET', KEYS[1]) or '', '%S+') do
  local value = tonumber(number)
  -- No sum with one that is infinite or not a number would be another again.
  if value and value >= 0 and value < math.huge then
    stored[#stored + 1] = value
  end
end
local is_known = #stored == 9
local updated_at, reported_at = is_known and stored[1] or now, is_known and stored[2] or 0

-- A server's clock may be set back, or be that of another server after a failover.
local factor = 2 ^ (-math.max(0, now - updated_at) / half_life)
if tonumber(ARGV[3]) > 0 then
  reported_at = now
end
local sums = {}
for at = 1, 7 do
  local sum = is_known and stored[at + 2] or 0
  sums[at] = string.format('%.17g', sum * factor + tonumber(ARGV[at + 2]))
end
local text = table.concat(sums, ' ')
redis.call('SET', KEYS[1], string.format('%.0f %.0f ', now, reported_at) .. text, 'PX', ttl)

local age = reported_at > 0 and math.max(0, now - reported_at) or -1
return { string.format('%.0f', age), unpack(sums) }
