-- Decides all that a request asks of one hash tag, in one atomic step.
--   KEYS[i]      a cell of packed records, or a queue of hits
--   ARGV[1]      the time in microseconds since the epoch, or '' for the server's own
--   ARGV[1 + i]  what is asked of key i: per ask, packed little endian, the record's id (6 bytes), its role (1
--                byte), three doubles: hits (> 0 charges, 0 looks, < 0 gives back) and the algorithm's two
--                parameters, and 8 bytes more, whose meaning is the algorithm's: zeros, or for what takes a charge
--                back, when that was made, in microseconds since the epoch (a double)
--   A role is 0 where each counter is charged for itself, the same for all asks of a call; else all that is
--   charged passes or none, 1 for an ask that keeps the others from it when it is denied, 2 for one that does not.
-- Replies a list of strings:
--   [1]          the time used: seconds since the epoch and microseconds past it, 32 bits each
--   [1 + i]      per ask of key i: 1 or 0 for admitted or denied (one byte), then the state's words (4 bytes
--                each), or of a queue the hits in it (4 bytes), microseconds until the hits asked for pass, -1 for
--                never, and until the last of the hits in it has ended (doubles)
-- Each key expires, to the millisecond, when the last of what it holds does. Under a given time it lives for an
-- hour instead: such a time says nothing about when the server's own clock will reach the end.
local ASK = '<c6Bdddc8'

-- The time that the decision is made at.
local function time_of(given)
  if given ~= '' then
    local micros = tonumber(given)
    local seconds = math.floor(micros / 1000000)
    return { s = seconds, us = micros - seconds * 1000000, micros = micros, given = true }
  end
  local time = redis.call('TIME')
  local s, us = tonumber(time[1]), tonumber(time[2])
  return { s = s, us = us, micros = s * 1000000 + us }
end

local function read_asks(packed)
  local asks, position = {}, 1
  while position <= #packed do
    local ask = {}
    ask.id, ask.role, ask.hits, ask.p1, ask.p2, ask.extra, position = struct.unpack(ASK, packed, position)
    ask.kind = string.byte(ask.id, ID) % 16
    ask.charged = math.max(ask.hits, 0)
    asks[#asks + 1] = ask
  end
  return asks
end

-- What a key holds. All asks of a queue have the same lifetime.
local function open_key(key, ask, now)
  if not QUEUES[ask.kind] then
    return open_cell(redis.call('GET', key))
  end
  local queue = { key = key, lifetime = ask.p2, horizon = now.micros - ask.p2, now = now }
  QUEUES[ask.kind].open(queue)
  return queue
end

local function undone_of(ask)
  return ask.hits < 0 and ask.extra ~= NOTHING and struct.unpack('<d', ask.extra) or nil
end

-- Whether a charge or a look passes after the charges before it; changes only what is there to be weighed.
local function passes(state, ask, now)
  local queue = QUEUES[ask.kind]
  if queue then
    local weighed = state.weighed or setmetatable({}, { __index = state })
    state.weighed = weighed
    if ask.hits == 0 then
      return weighed.used <= ask.p1
    end
    local admitted = queue.admits(weighed, ask.hits, ask.p1, ask.extra)
    if admitted then
      weighed.used, weighed.last = weighed.used + ask.hits, now.micros
    end
    return admitted
  end
  local weighed = state.weighed or {}
  state.weighed = weighed
  local known = weighed[ask.id] or { read_record(state, ask.id, ask.kind) }
  local admitted, a, b, c =
    ALGORITHMS[ask.kind].apply(known[1], known[2], known[3], ask.hits, ask.p1, ask.p2, nil, now, true)
  weighed[ask.id] = { a, b, c }
  return admitted == 1
end

-- Holds every charge back if one ask keeps the others from theirs. What gives back frees nothing for the others.
local function weigh(states, asks, now)
  local vetoed = false
  for i = 1, #KEYS do
    for _, ask in ipairs(asks[i]) do
      if ask.hits >= 0 then
        ask.passes = passes(states[i], ask, now)
        vetoed = vetoed or (ask.role == 1 and not ask.passes)
      end
    end
  end
  for i = 1, vetoed and #KEYS or 0 do
    for _, ask in ipairs(asks[i]) do
      if ask.hits >= 0 then
        ask.hits = 0
        ask.held_back = true
      end
    end
  end
end

local function admitted_byte(ask, admitted)
  if ask.held_back then
    return ask.passes and 1 or 0
  end
  return admitted
end

local function add_record(cell, id, state, now)
  if is_time_to_search(#cell.ids / ID) then
    drop_ended(cell, now)
  end
  if #cell.ids / ID >= UINT16_MAX then
    error('cell with too many records')
  end
  cell.ids = cell.ids .. id
  cell.states = cell.states .. state
end

-- Puts a state in place of that of the record at a position, which is kept under the kind.
local function replace_state(cell, at, kind, state)
  local from = state_position(cell, at)
  cell.states = string.sub(cell.states, 1, from - 1) .. state .. string.sub(cell.states, from + size_of(kind))
end

-- Keeps the words of an id's record, which is at a position under a kind, or is not there yet.
local function store_record(cell, id, at, kind, now, a, b, c)
  local outgrows = not is_large(kind) and kind >= THREE_WORDS and math.max(b, c) > UINT16_MAX
  local state = pack_state(a, b, c, outgrows and kind + 1 or kind)
  if at then
    replace_state(cell, at, kind, state)
  end
  if at and outgrows then
    cell.ids = string.sub(cell.ids, 1, at * ID) .. enlarged(id) .. string.sub(cell.ids, at * ID + ID + 1)
  elseif not at then
    add_record(cell, outgrows and enlarged(id) or id, state, now)
  end
  cell.changed = true
end

local function decide_record(cell, ask, now)
  local algorithm = ALGORITHMS[ask.kind]
  local a, b, c, at, kind = read_record(cell, ask.id, ask.kind)
  local admitted, a2, b2, c2 =
    algorithm.apply(a, b, c, ask.hits, ask.p1, ask.p2, undone_of(ask), now, ask.role ~= 0)
  local ends = algorithm.ends_at(a2, b2, c2)
  -- It may have been the last that ends.
  cell.ends_sooner = cell.ends_sooner or (at and ends < cell.ends and algorithm.ends_at(a, b, c) >= cell.ends)
  if at and (a2 ~= a or b2 ~= b or c2 ~= c) or not at and ends > now.s then
    store_record(cell, ask.id, at, kind, now, a2, b2, c2)
  end
  cell.ends = math.max(cell.ends, ends)
  local words = pack_state(a2, b2, c2, ask.kind >= THREE_WORDS and ask.kind + 1 or ask.kind)
  return string.char(admitted_byte(ask, admitted)) .. words
end

-- Microseconds until what was asked for passes; -1 for never.
local function wait_of(queue, ask)
  local algorithm, limit = QUEUES[ask.kind], ask.p1
  if ask.charged > limit then
    return -1
  end
  local too_many, wait = queue.used + ask.charged - limit, 0
  if too_many > 0 then
    wait = algorithm.time_of(queue, too_many - 1) + queue.lifetime - queue.now.micros
  end
  return math.max(wait, algorithm.pause(queue, ask.charged, ask.extra))
end

local function decide_queue(queue, ask)
  local algorithm, admitted = QUEUES[ask.kind], nil
  if ask.hits > 0 then
    admitted = algorithm.admits(queue, ask.hits, ask.p1, ask.extra)
    if admitted then
      algorithm.push(queue, ask.hits, ask.extra)
      queue.was_charged, queue.last = true, queue.now.micros
    end
  else
    if ask.hits < 0 then
      algorithm.give_back(queue, -ask.hits, ask.extra)
      queue.last = nil
    end
    admitted = ask.hits < 0 or queue.used <= ask.p1
  end
  local byte = admitted_byte(ask, admitted and 1 or 0)
  local wait = byte == 1 and 0 or wait_of(queue, ask)
  queue.left = queue.used > 0 and algorithm.newest(queue) + queue.lifetime - queue.now.micros or 0
  return struct.pack('<BI4dd', byte, queue.used, wait, queue.left)
end

-- Has the key live as long as its newest hit. A window that was made longer needs more than the last charge set.
local function close_queue(queue, kind)
  if queue.used > 0 then
    local millis = queue.now.given and 3600000 or math.ceil(queue.left / 1000)
    if queue.was_charged or redis.call('PTTL', queue.key) < millis then
      redis.call('PEXPIRE', queue.key, integer(millis))
    end
  end
  QUEUES[kind].close(queue)
end

local function store_cell(key, cell, now)
  if cell.ends_sooner then
    cell.ends = last_end(cell)
  end
  local micros = (cell.ends - now.s) * 1000000 - now.us
  if micros <= 0 then
    redis.call('DEL', key)
    return
  end
  local left = now.given and 3600000 or math.ceil(micros / 1000)
  local header = struct.pack('<BI2I4', FORMAT, #cell.ids / ID, cell.ends)
  redis.call('SET', key, header .. cell.ids .. cell.states, 'PX', integer(left))
end

local function decide_key(state, asks, decide, now)
  local outcomes = {}
  for at, ask in ipairs(asks) do
    outcomes[at] = decide(state, ask, now)
  end
  return table.concat(outcomes)
end

local now = time_of(ARGV[1])
local reply, states, asks = { struct.pack('<I4I4', now.s, now.us) }, {}, {}
for i = 1, #KEYS do
  asks[i] = read_asks(ARGV[1 + i])
  states[i] = open_key(KEYS[i], asks[i][1], now)
end
if asks[1][1].role ~= 0 then
  weigh(states, asks, now)
end
-- What may still fail comes before anything is charged, so that an error leaves nothing half done.
for i = 1, #KEYS do
  if not states[i].key then
    reply[1 + i] = decide_key(states[i], asks[i], decide_record, now)
  end
end
for i = 1, #KEYS do
  if states[i].key then
    reply[1 + i] = decide_key(states[i], asks[i], decide_queue)
    close_queue(states[i], asks[i][1].kind)
  elseif states[i].changed then
    store_cell(KEYS[i], states[i], now)
  end
end
return reply
