-- Hits counted in windows aligned to the epoch; twin of src/algorithm/fixed_window.rs, where it is explained.
--   p1     limit, in hits
--   p2     window, in seconds
--   state  a: end of the window, in seconds since the epoch; b: hits in it, those denied included
ALGORITHMS[0] = {
  apply = function(a, b, hits, limit, window, now)
    local ends = now.s - now.s % window + window
    local count = 0
    if a > now.s then
      ends = math.min(math.max(a, ends), ends + window)
      count = b
    end
    local after = math.max(count + hits, 0)
    return after <= limit and 1 or 0, ends, math.min(after, UINT32_MAX)
  end,

  ends_at = function(a, b)
    return b == 0 and 0 or a
  end,
}
