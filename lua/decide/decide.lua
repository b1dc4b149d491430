-- Decides the deferred calls: any that entry.lua allows.
local function read_asks(packed)
  local asks, position, last = {}, 5, #packed
  local ban_at, shares
  if string.byte(packed, 11) % 16 > 7 or string.byte(packed, 11) > 127 then
    local tail_bytes
    tail_bytes, shares = fast_path.read_tail(packed)
    last = last - tail_bytes
    ban_at = last + 1
  end
  while position <= last do
    local ask = {}
    ask.id, ask.role, ask.hits, ask.p1, ask.p2, ask.extra, position = struct.unpack('<c6Bdddc8', packed, position)
    ask.kind = string.byte(ask.id, ID) % 16
    ask.charged = math.max(ask.hits, 0)
    if ask.role > 127 then
      local ban
      ban, ban_at = read_ban(packed, ban_at)
      ban.id = ban_id(ask.id)
      ask.ban, ask.role, asks.have_bans = ban, ask.role - 128, true
    end
    if ask.role > 15 then
      if ask.role > 31 then
        ask.bound, ask.extra = struct.unpack('<d', ask.extra), NOTHING
      end
      ask.carries = ask.kind == 0 and ask.role > 63
      ask.overdraws, ask.role = math.floor(ask.role / 32) % 2 == 1, ask.role % 16
    end
    ask.role = ask.role % 8
    ask.share = shares and shares[#asks]
    asks[#asks + 1] = ask
  end
  asks.have_shares = shares ~= nil
  return asks
end

local queues = nil

-- The content of key i.
local function open_key(i, asks)
  if asks[1].kind == BUDGET then
    budgets = budgets or make_budgets()
    return budgets.open(KEYS[i], asks)
  end
  if MAKE_QUEUE[asks[1].kind] then
    queues = queues or make_queues()
    return queues.open(KEYS[i], asks[1])
  end
  local raw = read_cell(i)
  if type(raw) == 'table' then
    segments = segments or make_segments()
    return segments.open(i, asks)
  end
  return open_cell(raw)
end

-- The algorithms of a key of its own.
local function algorithms_of(state)
  return state.is_budget and budgets or queues
end

-- Whether a check returns hits, or settles what it reserved, which nothing keeps from having an effect.
local function returns_hits(ask)
  return ask.hits < 0 or ask.operation and ask.operation > 1
end

-- Withholds all charges of a call if a check vetoes them, or all quotas together do. Refunds do not make room for the
-- other checks.
local function apply_vetoes(call, states, asks)
  local vetoed, has_quota_left = false, nil
  for i = call.first, call.last do
    for _, ask in ipairs(asks[i]) do
      if not returns_hits(ask) then
        local passes = states[i].key and algorithms_of(states[i]).passes or record_passes
        ask.passes = not ask.banned and passes(states[i], ask)
        if ask.role == 4 then
          has_quota_left = has_quota_left or ask.passes
        end
        vetoed = vetoed or ask.role == 5 or ((ask.role == 1 or ask.role == 6) and not ask.passes)
      end
    end
  end
  vetoed = vetoed or has_quota_left == false
  -- A check that is charged nevertheless passes as it did with the charges of the others.
  for i = call.first, vetoed and call.last or 0 do
    for _, ask in ipairs(asks[i]) do
      if not returns_hits(ask) then
        ask.vetoed = true
        ask.withheld = not ask.overdraws and (ask.role ~= 6 or ask.passes)
      end
    end
  end
end

local function decide_key(state, asks, decide, times)
  local outcomes = {}
  for at, ask in ipairs(asks) do
    outcomes[at] = decide(state, ask, times)
  end
  return table.concat(outcomes)
end

-- Sets the limits of the region's checks of a cell.
local function apply_loans(i, state, asks)
  for _, ask in ipairs(asks) do
    if ask.share and not state.key then
      loans = loans or make_loans()
      loans.settle(state, ask, ARGV[1 + i])
    end
  end
end

local function decide_call(call)
  local states, asks, outcomes = {}, {}, {}
  for i = call.first, call.last do
    asks[i] = read_asks(ARGV[1 + i])
    states[i] = open_key(i, asks[i])
    if asks[i].have_shares then
      apply_loans(i, states[i], asks[i])
    end
  end
  for i = call.first, call.last do
    if asks[i].have_bans then
      ban_records = ban_records or make_ban_records()
      for _, ask in ipairs(asks[i]) do
        if ask.ban then
          ban_records.settle(states[i], ask)
        end
      end
    end
  end
  local role = asks[call.first][1].role
  if role ~= 0 and role ~= 3 then
    apply_vetoes(call, states, asks)
  end
  -- Everything that may still fail comes before the first charge, so that an error leaves no call half applied;
  -- except for a queue with content that no script of this project wrote.
  for i = call.first, call.last do
    if not states[i].key then
      outcomes[i] = decide_key(states[i], asks[i], decide_record, call.times)
    end
  end
  for i = call.first, call.last do
    -- A packed cell is written by its last command.
    half_written = half_written or i > call.first or states[i].key or states[i].segment_of
    if states[i].key then
      outcomes[i] = decide_key(states[i], asks[i], algorithms_of(states[i]).decide, call.times)
      algorithms_of(states[i]).close(states[i], asks[i][1])
    elseif states[i].changed then
      store_cell(i, states[i])
    end
  end
  return table.concat(outcomes, '', call.first, call.last)
end

for at = next_deferred, #deferred do
  local call = deferred[at]
  half_written = false
  if one_call then
    reply[call.place] = decide_call(call)
  else
    local fine, outcome = pcall(decide_call, call)
    reply[call.place] = fine and outcome or failure(outcome)
  end
end
return failed and reply or table.concat(reply)
