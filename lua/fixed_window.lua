-- Hits counted in windows aligned to the epoch; twin of src/algorithm/fixed_window.rs, where it is explained.
--   p1     limit, in hits
--   p2     window, in seconds
--   state  a: end of the window, in seconds since the epoch; b: hits in it
MAKE[0] = function()
  return {
    apply = function(a, b, c, hits, limit, window, undone, now, only_passing)
      local ends = now.s - now.s % window + window
      local count = 0
      if a > now.s then
        ends = math.min(math.max(a, ends), ends + window)
        count = b
      end
      local gives_back = hits < 0
      if undone then
        local second = math.floor(undone / 1000000)
        if second - second % window + window ~= ends then
          hits = 0
        end
      end
      local after = math.max(count + hits, 0)
      local admitted = gives_back or after <= limit
      if only_passing and hits > 0 and not admitted then
        after = count
      end
      return admitted and 1 or 0, ends, math.min(after, UINT32_MAX), 0
    end,

    ends_at = function(a, b)
      return b == 0 and 0 or a
    end,
  }
end
