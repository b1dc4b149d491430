-- Calls of nothing but one budget, which are decided before the definitions of the others; reservations.lua defines budgets.
-- Without this part, a lease takes 1.4 times as much of Redis' processor.
-- Returns the result of a call that reserves or settles one lease, while nothing else has to be done: no lease is due, and the
-- window is the one of the counter. The settlement may be repeated without usage, which changes nothing. Otherwise nil, and
-- nothing has changed. One function, however long: its parts share a dozen values, and another definition would cost every
-- command that comes here.
local function decide_lease(call)
  local packed = ARGV[1 + call.first]
  local redis_call, pack, unpack, s = redis.call, struct.pack, struct.unpack, now.s
  local role, hits, limit, p2, name = unpack('<Bdddc8', packed, CALL_BYTES + ID_BYTES + 1)
  local operation = math.floor(p2 % BUDGET_CHARGES_UNIT / BUDGET_OPERATION_UNIT)
  local is_reservation = operation == BUDGET_RESERVE
  -- Not of a trial, or a charge in full.
  if role >= ROLE_ALWAYS_VETO or #packed > ONE_CHECK_BYTES and is_reservation
    or not is_reservation and operation ~= BUDGET_SETTLE then
    return nil
  end
  for position = ONE_CHECK_BYTES + ID_BYTES + 1, #packed, CHECK_BYTES do
    local again, usage, _, terms, of = unpack('<Bdddc8', packed, position)
    if again >= ROLE_ALWAYS_VETO or usage ~= 0 or of ~= name
      or math.floor(terms % BUDGET_CHARGES_UNIT / BUDGET_OPERATION_UNIT) ~= BUDGET_SETTLE then
      return nil
    end
  end
  local key, found, lease = KEYS[call.first], nil, nil
  if is_reservation then
    found = redis_call('HMGET', key, 'h', name, 'p')
  else
    found = redis_call('HMGET', key, 'h', name)
  end
  lease = found[2]
  if not found[1] or not is_reservation and not lease then
    return nil
  end
  local ends, used, held, first, last, first_end, last_end, count, expires = unpack(BUDGET_HEADER, found[1])
  local window = p2 % BUDGET_TTL_UNIT
  local present = s - s % window + window
  if used > 0 and ends ~= present or first_end > 0 and first_end <= s or count >= MAX_LEASES then
    return nil
  end
  ends = present
  local admitted = REPLY_ADMITTED
  if not is_reservation then
    if #lease > 11 then
      return nil
    end
    if #lease > 4 then
      local _, amount = unpack(BUDGET_LEASE, lease)
      held = held - amount
      if hits == 0 then
        hits = p2 >= BUDGET_CHARGES_UNIT and amount or 0
      end
      used = math.min(used + hits, 9007199254740991)
      lease = string.sub(lease, 1, 4)
      if used > 0 and ends > expires then
        return nil
      end
      redis_call(
        'HSET', key, name, lease,
        'h', pack(BUDGET_HEADER, ends, used, held, first, last, first_end, last_end, count, expires)
      )
    end
  elseif lease then
    admitted = #lease == 11 and select(2, unpack(BUDGET_LEASE, lease)) >= hits and REPLY_ADMITTED or REPLY_CONFLICT
  else
    admitted = used + held + hits <= limit and REPLY_ADMITTED or 0
    if admitted == REPLY_ADMITTED then
      local pending, ttl = found[3], math.floor(p2 % BUDGET_OPERATION_UNIT / BUDGET_TTL_UNIT)
      local until_second = math.max(s + ttl, last_end)
      local counts_until = until_second
      if p2 >= BUDGET_CHARGES_UNIT then
        -- Hits that a lease holds may count until the end of the window in which it ends, and are remembered.
        counts_until = math.max(until_second - until_second % window + window, until_second + ttl)
      end
      if counts_until > expires then
        return nil
      end
      held, count = held + hits, count + 1
      local full = #pending > 0 and (last_end ~= until_second or #pending >= 56) and pending
      pending = full and name or pending .. name
      if first_end == 0 then
        first_end = until_second
      end
      lease = pack(BUDGET_LEASE, until_second, hits)
      local next_last = full and last + 1 or last
      local packed_header =
        pack(BUDGET_HEADER, ends, used, held, first, next_last, first_end, until_second, count, expires)
      if full then
        local field, batch = 'b' .. pack('<I6', last), pack('<I4', last_end) .. full
        redis_call('HSET', key, name, lease, 'p', pending, 'h', packed_header, field, batch)
      else
        redis_call('HSET', key, name, lease, 'p', pending, 'h', packed_header)
      end
    end
  end
  local outcome = pack('<BddI4', admitted, used, held, ends)
  return #packed == ONE_CHECK_BYTES and outcome or string.rep(outcome, (#packed - CALL_BYTES) / CHECK_BYTES)
end

-- Returns the result of a call on one budget, or nil if there is more to it.
local function decide_budget(call)
  local packed, key, checks, weighed = ARGV[1 + call.first], KEYS[call.first], {}, 0
  for position = CALL_BYTES + 1, #packed, CHECK_BYTES do
    local check = {}
    check.role, check.hits, check.p1, check.p2, check.extra = struct.unpack('<Bdddc8', packed, position + ID_BYTES)
    -- A trial, or a charge in full.
    if check.role >= ROLE_ALWAYS_VETO then
      return nil
    end
    local is_weighed = check.hits >= 0 and check.p2 % BUDGET_CHARGES_UNIT < BUDGET_SETTLE * BUDGET_OPERATION_UNIT
    weighed = weighed + (is_weighed and 1 or 0)
    checks[#checks + 1] = check
  end
  -- All or none, charges and reads are weighed before the call's other operations change the budget.
  if weighed > 1 or weighed == 1 and #checks > 1 then
    return nil
  end
  budgets = budgets or make_budgets()
  local budget = budgets.open(key, checks)
  local outcomes = {}
  for at, check in ipairs(checks) do
    outcomes[at] = budgets.decide(budget, check)
  end
  budgets.close(budget, checks[1])
  return #outcomes == 1 and outcomes[1] or table.concat(outcomes)
end

do
  local all = decide_deferred(function(call)
    local kind = string.byte(ARGV[1 + call.first], CALL_BYTES + ID_BYTES) % KINDS
    if kind == KIND_BUDGET and call.first == call.last and call.times == 1 then
      return decide_lease(call) or decide_budget(call)
    end
  end)
  if all then
    return all
  end
end
