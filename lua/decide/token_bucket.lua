-- Token bucket that refills continuously (GCRA); twin of crates/core/src/algorithm/token_bucket.rs, which explains it.
-- Times are counted in ticks of 10 ns; only differences below 2^53 ticks are computed, so the arithmetic is exact.
--   p1     emission interval, in ticks; 0 if the bucket never refills
--   p2     capacity, in ticks
--   bound  maximum debt, in ticks; the capacity if nil
--   state  a, b: the theoretical arrival time, in seconds since the epoch and ticks past that second; in the upper 5
--          bits of b the size of the largest bucket that was used: the exponent of the power of two of 16ths of
--          a second that has room for it
MAKE[1] = function()
  local TICKS_PER_SECOND = 100000000
  local SMALLEST = TICKS_PER_SECOND / 16
  local SIZE_UNIT = 134217728

  -- The ticks that are owed, and the size of the largest bucket used while any were owed.
  local function debt(a, b, capacity, now)
    local ticks = b % SIZE_UNIT
    local owed = (a - now.s) * TICKS_PER_SECOND + (ticks - now.us * 100)
    if owed <= 0 then
      return 0, 0
    end
    local size = (b - ticks) / SIZE_UNIT
    return math.min(owed, math.max(SMALLEST * 2 ^ size, capacity)), size
  end

  -- The words of a state that owes this many ticks.
  local function state_of(owed, size, capacity, now)
    if owed == 0 then
      return 0, 0, 0
    end
    local room = SMALLEST * 2 ^ size
    while room < capacity do
      size, room = size + 1, room * 2
    end
    local full = now.us * 100 + owed
    local seconds = math.floor(full / TICKS_PER_SECOND)
    local ticks = full - seconds * TICKS_PER_SECOND
    return math.min(now.s + seconds, 4294967295), ticks + size * SIZE_UNIT, 0
  end

  return {
    apply = function(a, b, c, hits, emission, capacity, charged_at, now, times, only_passing, bound, overdraws)
      local most = bound or capacity
      local owed, size = debt(a, b, most, now)
      local admitted = true
      if hits > 0 then
        local cost = emission * hits
        local passing = 0
        if emission > 0 then
          passing = math.max(math.min(math.floor((capacity - owed) / cost), times), 0)
        end
        owed = owed + cost * passing
        admitted = passing == times
        if not admitted and overdraws then
          owed = math.max(owed, math.min(owed + cost, bound))
        end
      elseif hits < 0 then
        local back = emission > 0 and -emission * hits or math.huge
        if charged_at then
          back = math.max(back - math.max(now.micros - charged_at, 0) * 100, 0)
        end
        owed = math.max(owed - back, 0)
      else
        admitted = owed <= capacity
      end
      return admitted and 1 or 0, state_of(owed, size, most, now)
    end,

    remaining = function(a, b, c, emission, capacity, hold, now)
      local owed, size = debt(a, b, capacity, now)
      local held = math.max(owed, hold * 100000)
      return emission > 0 and math.floor((capacity - held) / emission) or 0, state_of(held, size, capacity, now)
    end,

    ends_at = function(a, b)
      return b % SIZE_UNIT > 0 and math.min(a + 1, 4294967295) or a
    end,
  }
end
