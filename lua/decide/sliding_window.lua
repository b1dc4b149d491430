-- Sliding window of two counters, the previous one weighted; twin of crates/core/src/algorithm/sliding_window.rs, which
-- explains the algorithm.
--   p1     limit, in hits
--   p2     window, in seconds
--   state  a: when the current hits stop counting, in seconds since the epoch; b: hits of the current window;
--          c: hits of the previous window
MAKE[8] = function()
  local STEPS = 2097152

  -- The end of the current window, its hits, the hits of the previous window, and the weighted share of the latter.
  local function counts(a, b, c, window, now)
    local ends = now.s - now.s % window + window
    if a <= now.s then
      return ends, 0, 0, 0
    elseif a == ends then
      b, c = 0, b
    elseif a > ends + window then
      ends = ends + window
    end
    if c == 0 then
      return ends, b, 0, 0
    end
    local step = math.ceil(window * 1000000 / STEPS)
    local steps = math.floor(window * 1000000 / step)
    local left = math.min(math.ceil(((ends - now.s) * 1000000 - now.us) / step), steps)
    return ends, b, c, math.floor(c * left / steps)
  end

  return {
    apply = function(a, b, c, hits, limit, window, charged_at, now, times, only_passing, bound, overdraws)
      local charged_window
      if charged_at then
        local second = math.floor(charged_at / 1000000)
        charged_window = second - second % window + window
        if a ~= charged_window + window and a ~= charged_window + 2 * window then
          return 1, a, b, c
        end
      end
      local ends, share
      ends, b, c, share = counts(a, b, c, window, now)
      local admitted = true
      if hits > 0 then
        local passing = math.max(math.min(math.floor((limit - share - b) / hits), times), 0)
        b = b + hits * passing
        admitted = passing == times
        if not admitted and overdraws then
          b = math.min(b + hits, bound)
        end
      elseif charged_at then
        if charged_window == ends then
          b = math.max(b + hits, 0)
        elseif charged_window + window == ends then
          c = math.max(c + hits, 0)
        end
      elseif hits < 0 then
        c = math.max(c + math.min(b + hits, 0), 0)
        b = math.max(b + hits, 0)
      else
        admitted = share + b <= limit
      end
      return admitted and 1 or 0, math.min(ends + window, 4294967295), b, c
    end,

    remaining = function(a, b, c, limit, window, hold, now)
      local _, count, _, share = counts(a, b, c, window, now)
      return limit - share - count, a, b, c
    end,

    ends_at = function(a, b, c)
      return b == 0 and c == 0 and 0 or a
    end,
  }
end
