-- A bucket that refills continuously (GCRA); twin of src/algorithm/token_bucket.rs, where it is explained.
-- Times are counted in ticks of 10 ns; only differences below 2^53 ticks are computed, so all of it is exact.
--   p1     emission interval, in ticks; 0 when no token ever comes
--   p2     capacity, in ticks
--   state  a, b: the theoretical arrival time, in seconds since the epoch and ticks past that second; in the upper 5
--          bits of b the size of the largest bucket that was asked: the exponent of the power of two of 16ths of
--          a second that has room for it
MAKE[1] = function()
  local TICKS_PER_SECOND = 100000000
  local SMALLEST = TICKS_PER_SECOND / 16
  local SIZE_UNIT = 134217728

  local function bucket_size(capacity)
    local size, room = 0, SMALLEST
    while room < capacity do
      size, room = size + 1, room * 2
    end
    return size
  end

  return {
    apply = function(a, b, c, hits, emission, capacity, undone, now)
      local now_ticks = now.us * 100
      local ticks = b % SIZE_UNIT
      local size = (b - ticks) / SIZE_UNIT
      local owed = math.max((a - now.s) * TICKS_PER_SECOND + (ticks - now_ticks), 0)
      owed = math.min(owed, math.max(SMALLEST * 2 ^ size, capacity))
      if owed == 0 then
        size = 0
      end
      local admitted, after = 1, owed
      if hits > 0 then
        after = owed + emission * hits
        if emission == 0 or after > capacity then
          admitted, after = 0, owed
        end
      elseif hits < 0 then
        local back = emission > 0 and -emission * hits or math.huge
        if undone then
          back = math.max(back - math.max(now.micros - undone, 0) * 100, 0)
        end
        after = math.max(owed - back, 0)
      end
      if after == 0 then
        return admitted, 0, 0, 0
      end
      local full = now_ticks + after
      local seconds = math.floor(full / TICKS_PER_SECOND)
      ticks = full - seconds * TICKS_PER_SECOND
      return admitted, math.min(now.s + seconds, UINT32_MAX), ticks + math.max(size, bucket_size(capacity)) * SIZE_UNIT, 0
    end,

    ends_at = function(a, b)
      return b % SIZE_UNIT > 0 and math.min(a + 1, UINT32_MAX) or a
    end,
  }
end
