-- Decides any call: ask.lua says what it is.
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

local queues = nil
for i = 1, #KEYS do
  if MAKE_QUEUE[string.byte(ARGV[1 + i], ID) % 16] then
    queues = queues or make_queues()
  end
end

-- What a key holds.
local function open_key(key, ask, now)
  if MAKE_QUEUE[ask.kind] then
    return queues.open(key, ask, now)
  end
  return open_cell(only_cell or redis.call('GET', key))
end

-- Holds every charge back if one ask keeps the others from theirs. What gives back frees nothing for the others.
local function weigh(states, asks, now)
  local vetoed = false
  for i = 1, #KEYS do
    for _, ask in ipairs(asks[i]) do
      if ask.hits >= 0 then
        ask.passes = (states[i].key and queues.passes or record_passes)(states[i], ask, now)
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

local function decide_key(state, asks, decide, now)
  local outcomes = {}
  for at, ask in ipairs(asks) do
    outcomes[at] = decide(state, ask, now)
  end
  return table.concat(outcomes)
end

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
    reply[1 + i] = decide_key(states[i], asks[i], queues.decide)
    queues.close(states[i], asks[i][1].kind)
  elseif states[i].changed then
    store_cell(KEYS[i], states[i], now)
  end
end
return reply
