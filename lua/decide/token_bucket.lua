-- Token bucket that refills continuously (GCRA); twin of crates/core/src/algorithm/token_bucket.rs, which explains it.
-- Times are counted in ticks of 10 ns; only differences below 2^53 ticks are computed, so the arithmetic is exact.
--   p1     emission interval, in ticks; 0 if the bucket never refills
--   p2     capacity, in ticks; negative for a limit override
--   bound  maximum debt, in ticks; the capacity if nil
--   state  a, b: the theoretical arrival time, in seconds since the epoch and ticks past that second; in the upper 5
--          bits of b the size of the rule's bucket or of the largest one of limit overrides: twice the exponent of the
--          power of 4 of about 82 ms that has room for it, and 1 if it is one of limit overrides
MAKE[1] = function()
  local TICKS_PER_SECOND = 100000000
  local SMALLEST = 8239747
  local SIZE_UNIT = 134217728

  -- The part that counts of a debt above the capacity.
  local function bounded(owed, size, capacity, is_override)
    local most, room = capacity, SMALLEST * 4 ^ math.floor(size / 2)
    if is_override or size % 2 == 1 then
      most = math.max(most, room)
    end
    local top = math.max(most, room)
    -- Beyond eight times the size, the clock was ahead; up to then, it stepped back.
    return (owed <= most or owed > top and owed <= top * 8) and owed or most
  end

  -- The ticks that are owed, and the size of the state.
  local function debt(a, b, capacity, now, is_override)
    local ticks = b % SIZE_UNIT
    local owed = (a - now.s) * TICKS_PER_SECOND + (ticks - now.us * 100)
    if owed <= 0 then
      return 0, 0
    end
    local size = (b - ticks) / SIZE_UNIT
    if owed > capacity then
      owed = bounded(owed, size, capacity, is_override)
    end
    return owed, size
  end

  -- The size to store after a use of a bucket on a state of a known size.
  local function size_after(known, capacity, is_override)
    local exponent, room = 0, SMALLEST
    while room < capacity do
      exponent, room = exponent + 2, room * 4
    end
    if is_override or known % 2 == 1 then
      local marked = known % 2 == 1 or exponent >= known
      return math.max(exponent, known - known % 2) + (marked and 1 or 0)
    end
    return exponent
  end

  -- The words of a state that owes this many ticks.
  local function state_of(owed, size, capacity, now, is_override)
    if owed == 0 then
      return 0, 0, 0
    end
    local room = SMALLEST * 2 ^ size
    if is_override or size % 2 == 1 or room < capacity or room >= capacity * 4 and size > 0 and owed <= capacity then
      size = size_after(size, capacity, is_override)
    end
    local full = now.us * 100 + owed
    local seconds = math.floor(full / TICKS_PER_SECOND)
    return math.min(now.s + seconds, 4294967295), full - seconds * TICKS_PER_SECOND + size * SIZE_UNIT, 0
  end

  return {
    apply = function(a, b, c, hits, emission, capacity, charged_at, now, times, only_passing, bound, overdraws)
      local is_override = capacity < 0
      if is_override then
        capacity = -capacity
      end
      local most = bound or capacity
      local owed, size = debt(a, b, most, now, is_override)
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
      return admitted and 1 or 0, state_of(owed, size, most, now, is_override)
    end,

    remaining = function(a, b, c, emission, capacity, hold, now)
      local is_override = capacity < 0
      if is_override then
        capacity = -capacity
      end
      local owed, size = debt(a, b, capacity, now, is_override)
      local held = math.max(owed, hold * 100000)
      local tokens = emission > 0 and math.floor((capacity - held) / emission) or 0
      return tokens, state_of(held, size, capacity, now, is_override)
    end,

    ends_at = function(a, b)
      return b % SIZE_UNIT > 0 and math.min(a + 1, 4294967295) or a
    end,
  }
end
