-- Fixed windows aligned to the epoch; twin of crates/core/src/algorithm/fixed_window.rs, which explains the algorithm.
--   p1     limit, in hits
--   p2     window, in seconds
--   state  a: end of the window, in seconds since the epoch; b: hits in it
MAKE[0] = function(max)
  -- The most hits that a state holds.
  max = max or 4294967295

  -- The end of the window that hits count in, and its hits.
  local function counts(a, b, window, now)
    local s = now.s
    local ends = s - s % window + window
    if a <= s then
      return ends, 0
    elseif a > ends then
      ends = a <= ends + 4 * window and a or ends + window
    end
    return ends, b
  end

  return {
    apply = function(a, b, c, hits, limit, window, charged_at, now, times, only_passing)
      local ends, count = counts(a, b, window, now)
      if hits >= 0 and not only_passing then
        -- The usual case.
        local after = count + hits * times
        return after <= limit and 1 or 0, ends, after < max and after or max, 0
      end
      if charged_at then
        local second = math.floor(charged_at / 1000000)
        if second - second % window + window ~= a then
          return 1, a, b, 0
        end
      end
      if hits > 0 then
        local passing = math.max(math.min(math.floor((limit - count) / hits), times), 0)
        return passing == times and 1 or 0, ends, count + passing * hits, 0
      end
      local after = math.max(count + hits * times, 0)
      local admitted = hits < 0 or after <= limit
      return admitted and 1 or 0, ends, math.min(after, max), 0
    end,

    remaining = function(a, b, c, limit, window, hold, now)
      local _, count = counts(a, b, window, now)
      return limit - count, a, b, c
    end,

    ends_at = function(a, b)
      return b == 0 and 0 or a
    end,
  }
end
