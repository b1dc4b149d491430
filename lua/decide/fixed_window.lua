-- Fixed windows aligned to the epoch or of a calendar; twin of crates/core/src/algorithm/fixed_window.rs, which explains the algorithm.
--   p1     limit, in hits
--   p2     window, in seconds; below 0 the windows of a calendar around an instance's estimate of the time, see
--          script_window in crates/core/src/calendar.rs: minus a number of the bound between two windows, in seconds since
--          the epoch and from CALENDAR_BOUND_UNIT on; the unit, a day to a year, from CALENDAR_PERIOD_UNIT on; and the lengths of
--          the window before the bound, from CALENDAR_LENGTH_UNIT on, and of the one after it, in quarters of an hour beyond
--          a length of the unit
--   charged_at  of windows of a calendar the end of the window of the charge
--   state  a: end of the window, in seconds since the epoch; b: hits in it
MAKE[KIND_FIXED_WINDOW] = function(max)
  -- The most hits that a state holds.
  max = max or 4294967295

  -- The end of the window that hits count in, its hits, and in a calendar the end of the window after it, if it is stated.
  local function counts(a, b, window, now)
    local s = now.s
    local ends, following
    if window > 0 then
      ends = s - s % window + window
      if a > ends then
        ends = a <= ends + 4 * window and a or ends + window
      end
    else
      local rest = -window % CALENDAR_BOUND_UNIT
      local middle, unit = (-window - rest) / CALENDAR_BOUND_UNIT, math.floor(rest / CALENDAR_PERIOD_UNIT)
      local shortest = unit == 0 and 0 or unit == 1 and 480 or unit == 2 and 2592 or 34944
      local length = unit == 0 and 86400 or unit == 1 and 604800 or unit == 2 and 2592000 or 31536000
      local before = (shortest + math.floor(rest % CALENDAR_PERIOD_UNIT / CALENDAR_LENGTH_UNIT)) * CALENDAR_QUARTER
      local after = (shortest + rest % CALENDAR_LENGTH_UNIT) * CALENDAR_QUARTER
      ends = s < middle and middle or middle + after
      local starts = s < middle and middle - before or middle
      if s < starts or s >= ends then
        error('outside of both windows at ' .. s)
      end
      following = s < middle and middle + after or nil
      if a > ends and a <= ends + 4 * length then
        ends = a
      end
    end
    return ends, a > s and b or 0, following
  end

  return {
    counts = counts,

    apply = function(a, b, c, hits, limit, window, charged_at, now, times, only_passing)
      local ends, count = counts(a, b, window, now)
      if hits >= 0 and not only_passing then
        -- The usual case.
        local after = count + hits * times
        return after <= limit and 1 or 0, ends, after < max and after or max, 0
      end
      if charged_at then
        local second = math.floor(charged_at / 1000000)
        if (window > 0 and second - second % window + window or second) ~= a then
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
