-- Sliding window of two counters, the previous one weighted; twin of crates/core/src/algorithm/sliding_window.rs, which
-- explains the algorithm.
--   p1     limit, in hits
--   p2     window, in seconds: below SLIDING_SINCE_UNIT; above, unless 0, the second since which the rule has it, modulo
--          SLIDING_SINCE_RANGE;
--          negative if the share of the previous window is rounded up
--   state  a: when the current hits stop counting, in seconds since the epoch; b: hits of the current window;
--          c: hits of the previous window
MAKE[KIND_SLIDING_WINDOW] = function()
  -- The window of a parameter that says since when it has its length, and whether that is since the current window.
  -- And whether the share is rounded up.
  local function changed_window(window, now)
    local rounds_up = window < 0
    window = math.abs(window)
    local length = window % SLIDING_SINCE_UNIT
    if length == window then
      return length, false, rounds_up
    end
    local age = (now.s - (window - length) / SLIDING_SINCE_UNIT) % SLIDING_SINCE_RANGE
    -- The instance's clock may be ahead of this one.
    return length, age < now.s % length or age > SLIDING_SINCE_RANGE * 0.75, rounds_up
  end

  -- The end of the current window, its hits, the hits of the previous window, and the weighted share of the latter.
  local function counts(a, b, c, window, now, is_changed, rounds_up)
    local ends = now.s - now.s % window + window
    if a <= now.s then
      return ends, 0, 0, 0
    elseif a == ends and not is_changed then
      b, c = 0, b
    elseif a ~= ends + window or is_changed then
      if a <= ends + window then
        b, c = math.min(b + c, 4294967295), 0
      else
        ends = a <= ends + 5 * window and a - window or ends + window
      end
    end
    if c == 0 then
      return ends, b, 0, 0
    end
    local step = math.ceil(window * 1000000 / SLIDING_STEPS)
    local steps = math.floor(window * 1000000 / step)
    local left = math.min(math.ceil(((ends - now.s) * 1000000 - now.us) / step), steps)
    local share = c * left / steps
    return ends, b, c, rounds_up and math.ceil(share) or math.floor(share)
  end

  return {
    apply = function(a, b, c, hits, limit, window, charged_at, now, times, only_passing, bound, overdraws)
      local charged_window, is_changed, rounds_up
      if window >= SLIDING_SINCE_UNIT or window < 0 then
        window, is_changed, rounds_up = changed_window(window, now)
      end
      if charged_at then
        local second = math.floor(charged_at / 1000000)
        charged_window = second - second % window + window
        if a ~= charged_window + window and a ~= charged_window + 2 * window then
          return 1, a, b, c
        end
      end
      local ends, share
      ends, b, c, share = counts(a, b, c, window, now, is_changed, rounds_up)
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
      local is_changed, rounds_up
      if window >= SLIDING_SINCE_UNIT or window < 0 then
        window, is_changed, rounds_up = changed_window(window, now)
      end
      local _, count, _, share = counts(a, b, c, window, now, is_changed, rounds_up)
      return limit - share - count, a, b, c
    end,

    ends_at = function(a, b, c)
      return b == 0 and c == 0 and 0 or a
    end,
  }
end
