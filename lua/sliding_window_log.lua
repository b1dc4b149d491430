-- A log of every hit that was admitted; twin of src/algorithm/sliding_window_log.rs, where it is explained.
--   limit     in hits
--   lifetime  the window, in microseconds
--   extra     of a charge: the least time between two requests that pass, in microseconds, a double
--             of an undo: when the charge stops counting, in microseconds since the epoch, a double
--   reply     hits in the log (4 bytes); microseconds until the hits asked for pass, -1 for never, and until the
--             last of the hits in it has ended (doubles)
local function until_due(queue, now, extra)
  local last = newest(queue)
  return last and math.max(last + struct.unpack('<d', extra) - now, 0) or 0
end

QUEUES[2] = {
  width = 8,

  admits = function(queue, hits, limit, extra, now)
    return queue.used + hits <= limit and until_due(queue, now, extra) == 0
  end,

  push = function(queue, hits, extra, now)
    push(queue, now, hits, '')
  end,

  give_back = function(queue, hits, lifetime, extra)
    if extra == NO_LEASE then
      remove_newest(queue, hits)
    else
      remove_at(queue, struct.unpack('<d', extra) - lifetime, hits)
    end
  end,

  wait = function(queue, hits, limit, lifetime, extra, now)
    local wait = wait_for_room(queue, now, lifetime, limit, hits)
    if wait >= 0 and hits > 0 then
      wait = math.max(wait, until_due(queue, now, extra))
    end
    return wait
  end,
}
