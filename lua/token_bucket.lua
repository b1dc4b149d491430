-- A bucket that refills continuously (GCRA); twin of src/algorithm/token_bucket.rs, where it is explained.
-- Times are counted in ticks of 10 ns; only differences below 2^53 ticks are computed, so all of it is exact.
--   p1     emission interval, in ticks; 0 when no token ever comes
--   p2     capacity, in ticks
--   state  a, b: the theoretical arrival time, in seconds since the epoch and ticks past that second
local TICKS_PER_SECOND = 100000000

ALGORITHMS[1] = {
  apply = function(a, b, c, hits, emission, capacity, undone, now)
    local now_ticks = now.us * 100
    local debt = (a - now.s) * TICKS_PER_SECOND + (b - now_ticks)
    debt = math.min(math.max(debt, 0), capacity)
    local admitted = 1
    if hits > 0 then
      local charged = debt + emission * hits
      if emission > 0 and charged <= capacity then
        debt = charged
      else
        admitted = 0
      end
    elseif hits < 0 then
      local back = emission > 0 and -emission * hits or capacity
      if undone then
        back = math.min(back, math.max(undone - now.micros, 0) * 100)
      end
      debt = math.max(debt - back, 0)
    end
    local full = now_ticks + debt
    local seconds = math.floor(full / TICKS_PER_SECOND)
    return admitted, math.min(now.s + seconds, UINT32_MAX), full - seconds * TICKS_PER_SECOND, 0
  end,

  ends_at = function(a, b)
    return b > 0 and math.min(a + 1, UINT32_MAX) or a
  end,
}
