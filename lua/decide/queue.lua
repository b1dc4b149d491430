-- Decisions on queues of hits, each under a key of its own; prelude.lua defines queues.
local MAKE_QUEUE, QUEUES = {}, {}
local NOTHING = '\0\0\0\0\0\0\0\0'
local MAX_ARGUMENTS = 1000

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
  local function open(key, ask)
    local queue = { key = key, lifetime = ask.p2, horizon = now.micros - ask.p2, now = now }
    queue_algorithm(ask.kind).open(queue)
    return queue
  end

  -- Whether a charge or a check passes after the preceding charges; changes only the simulated state.
  local function passes(queue, ask)
    local simulated = queue.simulated or setmetatable({}, { __index = queue })
    queue.simulated = simulated
    if ask.hits == 0 then
      return simulated.used <= ask.p1
    end
    local admitted = queue_algorithm(ask.kind).admits(simulated, ask.hits, ask.p1, ask.extra)
    if admitted or ask.overdraws then
      simulated.used, simulated.last = simulated.used + ask.hits, now.micros
    end
    return admitted
  end

  -- Microseconds until the requested hits would pass; -1 for never.
  local function wait_of(queue, ask)
    local algorithm, limit = queue_algorithm(ask.kind), ask.p1
    if ask.charged > limit then
      return -1
    end
    local too_many, wait = queue.used + ask.charged - limit, 0
    if too_many > 0 then
      wait = algorithm.time_of(queue, too_many - 1) + queue.lifetime - queue.now.micros
    end
    return math.max(wait, algorithm.spacing_delay(queue, ask.charged, ask.extra))
  end

  -- Decides a check that is repeated: all repetitions that pass come before all that do not, which have the same result.
  local function decide_run(queue, ask, times)
    local algorithm, hits, passing = queue_algorithm(ask.kind), ask.hits, 0
    if hits == 0 then
      passing = queue.used <= ask.p1 and times or 0
    elseif algorithm.admits(queue, hits, ask.p1, ask.extra) then
      -- After a minimum interval only one passes.
      passing = ask.extra ~= NOTHING and 1 or math.min(math.floor((ask.p1 - queue.used) / hits), times)
      queue.last = algorithm.push(queue, passing * hits, ask.extra)
      queue.was_charged = true
    end
    local wait = passing < times and wait_of(queue, ask) or 0
    queue.left = queue.used > 0 and algorithm.newest(queue) + queue.lifetime - queue.now.micros or 0
    return struct.pack('<I2I4dd', passing, queue.used, wait, queue.left)
  end

  local function decide(queue, ask, times)
    if times > 1 then
      return decide_run(queue, ask, times)
    end
    local algorithm, admitted = queue_algorithm(ask.kind), nil
    local hits = ask.withheld and 0 or ask.hits
    if hits > 0 then
      admitted = algorithm.admits(queue, hits, ask.p1, ask.extra)
      if admitted or ask.overdraws then
        queue.last = algorithm.push(queue, math.min(hits, ask.bound or hits), ask.extra)
        queue.was_charged = true
        -- Of a log, the only queue with a bound, the newest hits are kept.
        local excess = queue.used - (ask.bound or queue.used)
        if excess > 0 then
          redis.call('LTRIM', queue.key, integer(queue.ended + excess), integer(-1 - queue.refunded))
          queue.used, queue.ended, queue.refunded, queue.oldest = ask.bound, 0, 0, nil
        end
      end
    else
      if hits < 0 then
        algorithm.refund(queue, -hits, ask.extra)
        queue.last = nil
      end
      admitted = hits < 0 or queue.used <= ask.p1
    end
    if ask.vetoed then
      admitted = ask.passes
    end
    local wait = admitted and 0 or wait_of(queue, ask)
    queue.left = queue.used > 0 and algorithm.newest(queue) + queue.lifetime - queue.now.micros or 0
    return struct.pack('<BI4dd', admitted and 1 or 0, queue.used, wait, queue.left)
  end

  -- Sets the key's expiry, a lifetime or more after that of its newest hit: until then, a lifetime that was lengthened
  -- meanwhile applies to the hits of an idle key too. It needs a later expiry than the last charge set.
  local function close(queue, ask)
    local algorithm = queue_algorithm(ask.kind)
    if queue.used > 0 then
      if queue.was_charged or redis.call('PTTL', queue.key) < queue.left / 1000 then
        local micros = queue.left + math.max(queue.lifetime, algorithm.retention)
        redis.call('PEXPIRE', queue.key, integer(queue.now.given and 3600000 or math.ceil(micros / 1000)))
      end
    end
    algorithm.close(queue)
  end

  return { open = open, passes = passes, decide = decide, close = close }
end
