-- Decisions on queues of hits, each under a key of its own; prelude.lua defines queues.
local MAKE_QUEUE, QUEUES = {}, {}
local NOTHING = '\0\0\0\0\0\0\0\0'
local MAX_ARGUMENTS = 1000

-- Permits that the command still removes, after they have expired, and moves, of a clock that was ahead: 0.1 and 0.5 us each. The
-- others are left to later commands, and count as though they were removed or moved.
local removals_left, upkeep_left = 15000, 30000

-- An integer as commands take it, with all of its digits.
local function integer(number)
  return string.format('%.0f', number)
end

local function make_queues()
  local function queue_algorithm(kind)
    QUEUES[kind] = QUEUES[kind] or MAKE_QUEUE[kind]()
    return QUEUES[kind]
  end

  -- The queue under a key. All checks of it have the same lifetime.
  local function open(key, check)
    local queue = { key = key, lifetime = check.p2, horizon = now.micros - check.p2, now = now }
    queue_algorithm(check.kind).open(queue)
    return queue
  end

  -- Whether a charge or a check passes after the preceding charges; changes only the simulated state.
  local function passes(queue, check)
    local simulated = queue.simulated or setmetatable({}, { __index = queue })
    queue.simulated = simulated
    if check.hits == 0 then
      return simulated.used <= check.p1
    end
    local admitted = queue_algorithm(check.kind).admits(simulated, check.hits, check.p1, check.extra)
    if admitted or check.overdraws then
      simulated.used, simulated.last = simulated.used + check.hits, now.micros
    end
    return admitted
  end

  -- Microseconds until the requested hits would pass; -1 for never.
  local function wait_of(queue, check)
    local algorithm, limit = queue_algorithm(check.kind), check.p1
    if check.charged > limit then
      return -1
    end
    local too_many, wait = queue.used + check.charged - limit, 0
    if too_many > 0 then
      wait = algorithm.time_of(queue, too_many - 1) + queue.lifetime - queue.now.micros
    end
    return math.max(wait, algorithm.spacing_delay(queue, check.charged, check.extra))
  end

  -- Decides a check that is repeated: all repetitions that pass come before all that do not, which have the same result.
  local function decide_run(queue, check, times)
    local algorithm, hits, passing = queue_algorithm(check.kind), check.hits, 0
    if hits == 0 then
      passing = queue.used <= check.p1 and times or 0
    elseif algorithm.admits(queue, hits, check.p1, check.extra) then
      -- After a minimum interval only one passes.
      passing = check.extra ~= NOTHING and 1 or math.min(math.floor((check.p1 - queue.used) / hits), times)
      queue.last = algorithm.push(queue, passing * hits, check.extra)
      queue.was_charged = true
    end
    local wait = passing < times and wait_of(queue, check) or 0
    queue.left = queue.used > 0 and algorithm.newest(queue) + queue.lifetime - queue.now.micros or 0
    return struct.pack('<I2I4dd', passing, queue.used, wait, queue.left)
  end

  local function decide(queue, check, times)
    if times > 1 then
      return decide_run(queue, check, times)
    end
    local algorithm, admitted = queue_algorithm(check.kind), nil
    local hits = check.withheld and 0 or check.hits
    if hits > 0 then
      admitted = algorithm.admits(queue, hits, check.p1, check.extra)
      if admitted or check.overdraws then
        queue.last = algorithm.push(queue, math.min(hits, check.bound or hits), check.extra)
        queue.was_charged = true
        -- Of a log, the only queue with a bound, the newest hits are kept.
        local excess = queue.used - (check.bound or queue.used)
        if excess > 0 then
          write_command('LTRIM', queue.key, integer(queue.ended + excess), integer(-1 - queue.refunded))
          queue.used, queue.ended, queue.refunded, queue.oldest = check.bound, 0, 0, nil
        end
      end
    else
      if hits < 0 then
        algorithm.refund(queue, -hits, check.extra)
        queue.last = nil
      end
      admitted = hits < 0 or queue.used <= check.p1
    end
    if check.vetoed then
      admitted = check.passes
    end
    local wait = admitted and 0 or wait_of(queue, check)
    queue.left = queue.used > 0 and algorithm.newest(queue) + queue.lifetime - queue.now.micros or 0
    return struct.pack('<BI4dd', admitted and REPLY_ADMITTED or 0, queue.used, wait, queue.left)
  end

  -- Sets the key's expiry, a lifetime or more after that of its newest hit: until then, a lifetime that was lengthened
  -- meanwhile applies to the hits of an idle key too. It needs a later expiry than the last charge set.
  local function close(queue, check)
    local algorithm = queue_algorithm(check.kind)
    if queue.used > 0 then
      if queue.was_charged or redis.call('PTTL', queue.key) < queue.left / 1000 then
        local micros = queue.left + math.max(queue.lifetime, algorithm.retention)
        write_command('PEXPIRE', queue.key, integer(queue.now.given and 3600000 or math.ceil(micros / 1000)))
      end
    end
    algorithm.close(queue)
  end

  return { open = open, passes = passes, decide = decide, close = close }
end
