-- Decides the deferred calls: any that entry.lua allows.
local function read_checks(packed)
  local checks, position, last = {}, CALL_BYTES + 1, #packed
  local ban_at, shares
  local role = string.byte(packed, CALL_BYTES + ID_BYTES + 1)
  if role % ROLE_BESIDE_SPECIAL >= ROLE_BEFORE_TAIL or role >= ROLE_HAS_BAN then
    local tail_bytes
    tail_bytes, shares = fast_path.read_tail(packed)
    last = last - tail_bytes
    ban_at = last + 1
  end
  while position <= last do
    local check = {}
    check.id, check.role, check.hits, check.p1, check.p2, check.extra, position =
      struct.unpack('<c6Bdddc8', packed, position)
    check.kind = string.byte(check.id, ID_BYTES) % KINDS
    check.charged = math.max(check.hits, 0)
    if check.role >= ROLE_HAS_BAN then
      local ban
      ban, ban_at = read_ban(packed, ban_at)
      ban.id = ban_id(check.id)
      check.ban, check.role, checks.have_bans = ban, check.role - ROLE_HAS_BAN, true
    end
    if check.role >= ROLE_BESIDE_SPECIAL then
      if check.role >= ROLE_OVERDRAWS then
        check.bound, check.extra = struct.unpack('<d', check.extra), NOTHING
      end
      check.carries = check.kind == KIND_FIXED_WINDOW and check.role >= ROLE_HAS_BOUND
      check.overdraws, check.role = math.floor(check.role / ROLE_OVERDRAWS) % 2 == 1, check.role % ROLE_BESIDE_SPECIAL
    end
    check.role = check.role % ROLE_BEFORE_TAIL
    check.share = shares and shares[#checks]
    checks[#checks + 1] = check
  end
  checks.have_shares = shares ~= nil
  return checks
end

local queues = nil

-- The content of key i.
local function open_key(i, checks)
  if checks[1].kind == KIND_BUDGET then
    budgets = budgets or make_budgets()
    return budgets.open(KEYS[i], checks)
  end
  if MAKE_QUEUE[checks[1].kind] then
    queues = queues or make_queues()
    return queues.open(KEYS[i], checks[1])
  end
  local raw = read_cell(i)
  if type(raw) == 'table' then
    segments = segments or make_segments()
    return segments.open(i, checks)
  end
  return open_cell(raw)
end

-- The algorithms of a key of its own.
local function algorithms_of(state)
  return state.is_budget and budgets or queues
end

-- Whether a check returns hits, or settles what it reserved, which nothing keeps from having an effect.
local function returns_hits(check)
  return check.hits < 0 or check.operation and check.operation >= BUDGET_SETTLE
end

-- Withholds all charges of a call if a check vetoes them, or all quotas together do. Refunds do not make room for the
-- other checks.
local function apply_vetoes(call, states, checks)
  local vetoed, has_quota_left = false, nil
  for i = call.first, call.last do
    for _, check in ipairs(checks[i]) do
      if not returns_hits(check) then
        local passes = states[i].key and algorithms_of(states[i]).passes or record_passes
        check.passes = not check.banned and passes(states[i], check)
        if check.role == ROLE_QUOTA then
          has_quota_left = has_quota_left or check.passes
        end
        vetoed = vetoed or check.role == ROLE_ALWAYS_VETO
          or (check.role == ROLE_VETO or check.role == ROLE_VETO_COUNTED) and not check.passes
      end
    end
  end
  vetoed = vetoed or has_quota_left == false
  -- A check that is charged nevertheless passes as it did with the charges of the others.
  for i = call.first, vetoed and call.last or 0 do
    for _, check in ipairs(checks[i]) do
      if not returns_hits(check) then
        check.vetoed = true
        check.withheld = not check.overdraws and (check.role ~= ROLE_VETO_COUNTED or check.passes)
      end
    end
  end
end

local function decide_key(state, checks, decide, times)
  local outcomes = {}
  for at, check in ipairs(checks) do
    outcomes[at] = decide(state, check, times)
  end
  return table.concat(outcomes)
end

-- Sets the limits of the region's checks of a cell.
local function apply_loans(i, state, checks)
  for _, check in ipairs(checks) do
    if check.share and not state.key then
      loans = loans or make_loans()
      loans.settle(state, check, ARGV[1 + i])
    end
  end
end

local function decide_call(call)
  local states, checks, outcomes = {}, {}, {}
  for i = call.first, call.last do
    checks[i] = read_checks(ARGV[1 + i])
    states[i] = open_key(i, checks[i])
    if checks[i].have_shares then
      apply_loans(i, states[i], checks[i])
    end
  end
  for i = call.first, call.last do
    if checks[i].have_bans then
      ban_records = ban_records or make_ban_records()
      for _, check in ipairs(checks[i]) do
        if check.ban then
          ban_records.settle(states[i], check)
        end
      end
    end
  end
  local role = checks[call.first][1].role
  if role ~= ROLE_INDEPENDENT and role ~= ROLE_PASSING_ONLY then
    apply_vetoes(call, states, checks)
  end
  -- Everything that may still fail comes before the first charge, so that an error leaves no call half applied;
  -- except for a queue with content that no script of this project wrote.
  for i = call.first, call.last do
    if not states[i].key then
      outcomes[i] = decide_key(states[i], checks[i], decide_record, call.times)
    end
  end
  for i = call.first, call.last do
    if states[i].key then
      outcomes[i] = decide_key(states[i], checks[i], algorithms_of(states[i]).decide, call.times)
      algorithms_of(states[i]).close(states[i], checks[i][1])
    elseif states[i].changed then
      store_cell(i, states[i])
      half_written = true
    end
  end
  return table.concat(outcomes, '', call.first, call.last)
end

return decide_deferred(decide_call)
