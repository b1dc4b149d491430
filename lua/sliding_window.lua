-- Hits counted in two windows, those of the one before in part; twin of src/algorithm/sliding_window.rs, where it
-- is explained.
--   p1     limit, in hits
--   p2     window, in seconds
--   state  a: when the current hits stop counting, in seconds since the epoch; b: hits of the current window;
--          c: hits of the one before
MAKE[8] = function()
  local STEPS = 2097152

  return {
    apply = function(a, b, c, hits, limit, window, undone, now)
      local ends = now.s - now.s % window + window
      if a <= now.s then
        b, c = 0, 0
      elseif a == ends then
        b, c = 0, b
      elseif a > ends + window then
        ends = ends + window
      end
      local step = math.ceil(window * 1000000 / STEPS)
      local steps = math.floor(window * 1000000 / step)
      local left = math.min(math.ceil(((ends - now.s) * 1000000 - now.us) / step), steps)
      local admitted
      if hits > 0 then
        admitted = math.floor(c * left / steps) + b + hits <= limit
        if admitted then
          b = b + hits
        end
      else
        if undone then
          local second = math.floor(undone / 1000000)
          local window_end = second - second % window + window
          if window_end == ends then
            b = math.max(b + hits, 0)
          elseif window_end + window == ends then
            c = math.max(c + hits, 0)
          end
        else
          c = math.max(c + math.min(b + hits, 0), 0)
          b = math.max(b + hits, 0)
        end
        admitted = hits < 0 or math.floor(c * left / steps) + b <= limit
      end
      return admitted and 1 or 0, math.min(ends + window, UINT32_MAX), b, c
    end,

    ends_at = function(a, b, c)
      return b == 0 and c == 0 and 0 or a
    end,
  }
end

-- With counts that take 32 bits.
MAKE[9] = MAKE[8]
