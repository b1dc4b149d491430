-- Fixed windows of limits beyond 32 bits: the algorithm of fixed_window.lua, with hits up to 2^53 - 1, which Lua's numbers
-- hold exactly. The fast path does not have them.
--   state  a: end of the window, in seconds since the epoch; b: the low 32 bits of the hits in it; c: the others
MAKE[KIND_WIDE_WINDOW] = function()
  local WORD = 4294967296
  local narrow = MAKE[KIND_FIXED_WINDOW](9007199254740991)

  return {
    apply = function(a, b, c, ...)
      local admitted, ends, count = narrow.apply(a, b + c * WORD, 0, ...)
      return admitted, ends, count % WORD, math.floor(count / WORD)
    end,

    remaining = function(a, b, c, ...)
      return narrow.remaining(a, b + c * WORD, 0, ...), a, b, c
    end,

    ends_at = function(a, b, c)
      return b == 0 and c == 0 and 0 or a
    end,
  }
end
MAKE[KIND_LARGE_WIDE_WINDOW] = MAKE[KIND_WIDE_WINDOW]
