-- Token bucket that refills continuously (GCRA); twin of crates/core/src/algorithm/token_bucket.rs, which explains it.
-- Times are counted in ticks of 10 ns; only differences below 2^53 ticks are computed, so the arithmetic is exact.
--   p1     emission interval, in ticks; 0 if the bucket never refills
--   p2     capacity, in ticks; negative for a limit override
--   bound  maximum debt, in ticks; the capacity if nil
--   state  a, b: the theoretical arrival time, in seconds since the epoch and ticks past that second; in the upper 5
--          bits of b the size of the rule's bucket or of the largest one of limit overrides: twice the exponent of the
--          power of 4 of about 82 ms that has room for it, and 1 if it is one of limit overrides
MAKE[KIND_TOKEN_BUCKET] = function()
  -- The ticks that are owed, and the size of the state.
  local function debt(a, b, capacity, now, is_override)
    local ticks = b % BUCKET_SIZE_UNIT
    local owed = (a - now.s) * BUCKET_TICKS_PER_SECOND + (ticks - now.us * BUCKET_TICKS_PER_MICRO)
    if owed <= 0 then
      return 0, 0
    end
    local size = (b - ticks) / BUCKET_SIZE_UNIT
    if owed > capacity then
      local room = BUCKET_MIN_SIZE * 4 ^ math.floor(size / 2)
      local top = math.max(capacity, room)
      local most = (is_override or size % 2 == 1) and top or capacity
      -- Beyond eight times the size, the clock was ahead; up to then, it stepped back.
      if owed > most and (owed <= top or owed > top * 8) then
        owed = most
      end
    end
    return owed, size
  end

  -- The words of a state that owes this many ticks.
  local function state_of(owed, size, capacity, now, is_override)
    if owed == 0 then
      return 0, 0, 0
    end
    local room = BUCKET_MIN_SIZE * 2 ^ size
    -- A debt that is larger than its size is of a clock that stepped back: it keeps that size.
    local is_ahead = owed > capacity and owed > BUCKET_MIN_SIZE * 4 ^ math.floor(size / 2)
    if not is_ahead
      and (is_override or size % 2 == 1 or room < capacity or room >= capacity * 4 and size > 0 and owed <= capacity)
    then
      local known = size
      size, room = 0, BUCKET_MIN_SIZE
      while room < capacity do
        size, room = size + 2, room * 4
      end
      if is_override or known % 2 == 1 then
        local is_marked = known % 2 == 1 or size >= known
        size = math.max(size, known - known % 2) + (is_marked and 1 or 0)
      end
    end
    local full = now.us * BUCKET_TICKS_PER_MICRO + owed
    local seconds = math.floor(full / BUCKET_TICKS_PER_SECOND)
    return math.min(now.s + seconds, 4294967295), full - seconds * BUCKET_TICKS_PER_SECOND + size * BUCKET_SIZE_UNIT, 0
  end

  return {
    apply = function(a, b, c, hits, emission, capacity, charged_at, now, times, only_passing, bound, overdraws)
      local is_override = capacity < 0
      capacity = math.abs(capacity)
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
          back = math.max(back - math.max(now.micros - charged_at, 0) * BUCKET_TICKS_PER_MICRO, 0)
        end
        owed = math.max(owed - back, 0)
      else
        admitted = owed <= capacity
      end
      return admitted and 1 or 0, state_of(owed, size, most, now, is_override)
    end,

    remaining = function(a, b, c, emission, capacity, hold, now)
      local is_override = capacity < 0
      capacity = math.abs(capacity)
      local owed, size = debt(a, b, capacity, now, is_override)
      local held = math.max(owed, hold * BUCKET_TICKS_PER_MILLI)
      local tokens = emission > 0 and math.floor((capacity - held) / emission) or 0
      return tokens, state_of(held, size, capacity, now, is_override)
    end,

    ends_at = function(a, b)
      return b % BUCKET_SIZE_UNIT > 0 and math.min(a + 1, 4294967295) or a
    end,
  }
end
