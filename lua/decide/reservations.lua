-- Budgets: fixed windows in which requests reserve hits; twin of crates/core/src/algorithm/budget.rs, which explains them.
--   p1     limit, in hits
--   p2     window, in seconds; from bit 26 the time to live of leases, in seconds; from bit 46 the operation: 0 to charge, check
--          or refund hits, 1 to reserve them, 2 to settle a lease of which they were used, 3 to cancel it; from bit 49 whether
--          leases without a known usage are charged
--   extra  the name of the lease, or for a refund of one charge the time of that charge
--   state  a hash of its own:
--            h          the header: end of the window; used and held hits; the numbers of the first batch and of the last one; the
--                       ends of the leases in each; the number of leases in all batches; the second at which the key expires
--            p          the last batch: the names of leases that end together, in the order in which they were reserved
--            b, number  an earlier batch: the end of its leases, then their names
--            name       a lease: its end, and the hits that it holds, which are absent once it is settled; of one that ended
--                       by itself the time until which it is remembered, the hits that it was charged, and the end of the
--                       window in which they count, or 0
-- The elements are small, so that a hash of few leases is a compact one. Times are in seconds since the epoch.
local budgets
local MAX_LEASES = 65536
local BUDGET_HEADER, BUDGET_LEASE = '<I4ddI6I6I4I4I4I4', '<I4I7'

local function make_budgets()
  local MAX_BATCH, MAX_COUNT = 7, 9007199254740991
  -- Batches that are ended together, and fields that are removed together.
  local MAX_ENDED, MAX_FIELDS = 16, 1000
  -- Lengths of a name, and of an open lease.
  local NAME, OPEN = 8, 11
  -- Leases that a command ends, of all its budgets, before it leaves those that have ended to the next ones: some 3 us each.
  local MAX_ENDED_LEASES, ended_leases = 500, 0

  local function batch_name(number)
    return 'b' .. struct.pack('<I6', number)
  end

  -- Deletes the key of a budget; the memory of many leases in the background, unless an ACL forbids that.
  local function free(budget)
    if budget.old_count < MAX_FIELDS or type(redis.pcall('UNLINK', budget.key)) == 'table' then
      redis.call('DEL', budget.key)
    end
    half_written = true
  end

  local function charge(budget, hits)
    budget.used = math.min(budget.used + hits, MAX_COUNT)
  end

  -- Adds a lease that ends after this time, and with those before it at the earliest. rest: its content after its end.
  local function push(budget, name, ttl, rest)
    local until_second = math.max(math.min(now.s + ttl, 4294967295), budget.last_end)
    if #budget.pending >= MAX_BATCH * NAME or #budget.pending > 0 and budget.last_end ~= until_second then
      budget.changes[batch_name(budget.last)] = struct.pack('<I4', budget.last_end) .. budget.pending
      budget.last, budget.pending = budget.last + 1, ''
    end
    budget.pending, budget.last_end, budget.count = budget.pending .. name, until_second, budget.count + 1
    if budget.first_end == 0 then
      budget.first_end = until_second
    end
    local lease = struct.pack('<I4', until_second) .. rest
    budget.leases[name], budget.changes[name] = lease, lease
  end

  -- Ends a lease, which is removed. One that was charged is remembered, unless it ends early.
  local function end_lease(budget, name, raw, until_second)
    budget.gone[#budget.gone + 1] = name
    budget.leases[name], budget.changes[name] = false, nil
    if #raw ~= OPEN then
      return
    end
    local _, held = struct.unpack(BUDGET_LEASE, raw)
    budget.held = budget.held - held
    if budget.charges then
      -- Leases that ended before this window count no more.
      local counts = until_second >= budget.ends - budget.window
      charge(budget, counts and held or 0)
      if until_second <= now.s and until_second + budget.ttl > now.s then
        push(budget, name, budget.ttl, struct.pack('<I7I4', held, counts and budget.ends or 0))
      end
    end
  end

  -- Ends the leases of these names.
  local function end_leases(budget, names, ends)
    local found = redis.call('HMGET', budget.key, unpack(names))
    for at, raw in ipairs(found) do
      local name = names[at]
      -- Leases that this call changed are not written yet.
      if budget.leases[name] ~= nil then
        raw = budget.leases[name]
      end
      -- Another one of the same name may have been reserved since a cancelled one.
      if raw and struct.unpack('<I4', raw) == ends[at] then
        end_lease(budget, name, raw, ends[at])
      end
    end
  end

  -- Ends the first batches that are due at a time: at most one if is_early.
  local function end_batches(budget, time, is_early)
    local names, ends, numbers, ended, last = {}, {}, {}, 0, budget.first_end
    for number = budget.first, math.min(budget.last, budget.first + (is_early and 1 or MAX_ENDED)) - 1 do
      numbers[#numbers + 1] = batch_name(number)
    end
    local found = #numbers > 0 and redis.call('HMGET', budget.key, unpack(numbers)) or {}
    for at, raw in ipairs(found) do
      raw = raw or budget.changes[numbers[at]]
      local until_second = raw and struct.unpack('<I4', raw) or 0
      if not is_early and (until_second > time or ended_leases + #names >= MAX_ENDED_LEASES) then
        budget.first_end = until_second
        break
      end
      ended, last = at, math.max(last, until_second)
      for from = 5, raw and #raw or 0, NAME do
        names[#names + 1], ends[#ends + 1] = string.sub(raw, from, from + NAME - 1), until_second
      end
      budget.gone[#budget.gone + 1] = numbers[at]
      budget.changes[numbers[at]] = nil
    end
    budget.first = budget.first + ended
    if ended == #found then
      -- The next batch was not read, and ends no earlier than the last one that was.
      budget.first_end = budget.first < budget.last and last or budget.last_end
      local has_time = not is_early and ended_leases + #names < MAX_ENDED_LEASES
      if budget.first == budget.last and budget.last_end <= time and has_time then
        for from = 1, #budget.pending, NAME do
          names[#names + 1], ends[#ends + 1] = string.sub(budget.pending, from, from + NAME - 1), budget.last_end
        end
        budget.pending, budget.first_end, budget.last_end = '', 0, 0
      end
    end
    budget.count, ended_leases = budget.count - #names, ended_leases + #names
    if #names > 0 then
      end_leases(budget, names, ends)
    end
    budget.changed = true
  end

  -- Ends all leases, if they count alike: usually those of a counter that was idle. Returns whether it did.
  local function end_all(budget)
    local begin = budget.ends - budget.window
    local count_now = budget.first_end >= begin
    if budget.charges and not count_now and budget.last_end >= begin then
      return false
    end
    -- Some are to be remembered.
    if budget.charges and budget.held > 0 and budget.last_end + budget.ttl > now.s then
      return false
    end
    -- A deleted key cannot be set again while its slot migrates. No key has this name.
    if redis.pcall('GET', budget.key .. '~') ~= false then
      return false
    end
    charge(budget, budget.charges and count_now and budget.held or 0)
    for name in pairs(budget.leases) do
      budget.leases[name] = false
    end
    budget.held, budget.count, budget.pending, budget.first = 0, 0, '', budget.last
    budget.first_end, budget.last_end, budget.expires = 0, 0, 0
    budget.gone, budget.is_cleared, budget.changed = {}, true, true
    return true
  end

  -- Begins the window of now, and ends the leases that are due.
  local function advance(budget)
    local s, window = now.s, budget.window
    local ends = s - s % window + window
    if budget.ends <= s or budget.used == 0 then
      budget.changed = budget.used > 0
      budget.used, budget.ends = 0, ends
    elseif budget.ends ~= ends then
      -- The clock was ahead.
      budget.ends = budget.ends <= ends + 4 * window and math.max(budget.ends, ends) or ends + window
      budget.changed = true
    end
    if budget.last_end > 0 and budget.last_end <= s and end_all(budget) then
      return
    end
    -- The call's own leases end in time, however many others have.
    for name, raw in pairs(budget.leases) do
      local until_second = raw and struct.unpack('<I4', raw) or s + 1
      if until_second <= s then
        end_lease(budget, name, raw, until_second)
        budget.changed = true
      end
    end
    while budget.first_end > 0 and budget.first_end <= s and ended_leases < MAX_ENDED_LEASES do
      end_batches(budget, s)
    end
  end

  -- The budget under a key, as of now. All checks of it have the same terms.
  local function open(key, checks)
    local names = { 'h', 'p' }
    for _, check in ipairs(checks) do
      local p2 = check.p2
      check.ttl = math.floor(p2 % BUDGET_OPERATION_UNIT / BUDGET_TTL_UNIT)
      check.operation = math.floor(p2 % BUDGET_CHARGES_UNIT / BUDGET_OPERATION_UNIT)
      if check.operation > BUDGET_CHARGE then
        names[#names + 1] = check.extra
      end
    end
    local budget = {
      key = key,
      is_budget = true,
      window = checks[1].p2 % BUDGET_TTL_UNIT,
      charges = checks[1].p2 >= BUDGET_CHARGES_UNIT,
      ttl = checks[1].ttl,
      leases = {},
      -- Fields of the hash that are set and removed when the budget is closed: leases and batches.
      changes = {},
      gone = {},
    }
    local found = redis.call('HMGET', key, unpack(names))
    local ends, used, held, first, last, first_end, last_end, count, expires =
      struct.unpack(BUDGET_HEADER, found[1] or string.rep('\0', struct.size(BUDGET_HEADER)))
    budget.ends, budget.used, budget.held, budget.first, budget.last = ends, used, held, first, last
    budget.first_end, budget.last_end, budget.count, budget.expires = first_end, last_end, count, expires
    budget.exists, budget.pending, budget.old_count = found[1], found[2] or '', count
    -- Each batch has a lease at least. A header with more batches than leases would keep the loop below busy.
    if first > last or last - first > count then
      error('budget with a malformed header')
    end
    for at = 3, #names do
      budget.leases[names[at]] = found[at]
    end
    advance(budget)
    return budget
  end

  local function admits(budget, check, hits)
    return budget.used + budget.held + hits <= check.p1
  end

  -- Whether a known lease holds hits.
  local function holds(lease, hits)
    return #lease == OPEN and select(2, struct.unpack(BUDGET_LEASE, lease)) >= hits
  end

  local function insert(budget, check, rest)
    if budget.count >= MAX_LEASES then
      end_batches(budget, budget.first_end, true)
    end
    push(budget, check.extra, check.ttl, rest)
  end

  local function settle(budget, check)
    local lease, used = budget.leases[check.extra], check.hits
    if not lease then
      if used > 0 then
        charge(budget, used)
        insert(budget, check, '')
        budget.changed = true
      end
      return
    end
    if #lease == OPEN then
      local _, held = struct.unpack(BUDGET_LEASE, lease)
      budget.held = budget.held - held
      charge(budget, used > 0 and used or budget.charges and held or 0)
    elseif #lease > OPEN and used > 0 then
      local _, charged, window = struct.unpack('<I4I7I4', lease)
      charge(budget, used)
      -- Hits of other windows are of other requests.
      budget.used = math.max(budget.used - (window == budget.ends and charged or math.min(charged, used)), 0)
    else
      return
    end
    lease = string.sub(lease, 1, 4)
    budget.leases[check.extra], budget.changes[check.extra], budget.changed = lease, lease, true
  end

  local function cancel(budget, check)
    local lease = budget.leases[check.extra]
    if lease and #lease == OPEN then
      local _, held = struct.unpack(BUDGET_LEASE, lease)
      budget.leases[check.extra], budget.changes[check.extra] = false, nil
      budget.gone[#budget.gone + 1] = check.extra
      budget.held, budget.changed = budget.held - held, true
    end
  end

  -- Returns whether hits pass, and charges or reserves those that do.
  local function apply(budget, check)
    local hits = check.hits
    if check.operation == BUDGET_SETTLE then
      settle(budget, check)
      return true
    elseif check.operation == BUDGET_CANCEL then
      cancel(budget, check)
      return true
    elseif hits < 0 then
      local made_in_window = true
      if check.extra ~= '\0\0\0\0\0\0\0\0' then
        local second = math.floor(struct.unpack('<d', check.extra) / 1000000)
        made_in_window = second - second % budget.window + budget.window == budget.ends
      end
      if made_in_window and budget.used > 0 then
        budget.used, budget.changed = math.max(budget.used + hits, 0), true
      end
      return true
    elseif check.operation == BUDGET_RESERVE then
      local lease = budget.leases[check.extra]
      if lease then
        return holds(lease, hits)
      end
      local admitted = admits(budget, check, hits)
      if admitted then
        budget.held, budget.changed = budget.held + hits, true
        insert(budget, check, struct.pack('<I7', hits))
      end
      return admitted
    elseif check.overdraws then
      charge(budget, hits)
      budget.changed = true
      return admits(budget, check, 0)
    end
    local admitted = admits(budget, check, hits)
    if admitted and hits > 0 then
      charge(budget, hits)
      budget.changed = true
    end
    return admitted
  end

  -- Whether a charge or a check passes after the preceding charges; changes only the simulated sum.
  local function passes(budget, check)
    local lease = check.operation == BUDGET_RESERVE and budget.leases[check.extra]
    if lease then
      return holds(lease, check.hits)
    end
    local earlier = budget.earlier or 0
    local admitted = admits(budget, check, earlier + check.hits)
    if admitted or check.overdraws then
      budget.earlier = earlier + check.hits
    end
    return admitted
  end

  local function decide(budget, check)
    local admitted
    if budget.used == 0 then
      -- An earlier check of the call may have refunded all hits.
      budget.ends = now.s - now.s % budget.window + budget.window
    end
    if not check.withheld then
      admitted = apply(budget, check)
    end
    if check.vetoed then
      admitted = check.passes
    end
    local has_conflict = not admitted and check.operation == BUDGET_RESERVE and budget.leases[check.extra]
    local outcome = admitted and REPLY_ADMITTED or has_conflict and REPLY_CONFLICT or 0
    return struct.pack('<BddI4', outcome, budget.used, budget.held, budget.ends)
  end

  -- Writes the budget. The key outlives its content by a time to live, so that its expiry is seldom set.
  local function close(budget, check)
    if not budget.changed then
      return
    end
    if budget.used == 0 and budget.count == 0 then
      if budget.exists then
        free(budget)
      end
      return
    end
    if budget.is_cleared then
      free(budget)
    end
    for from = 1, #budget.gone, MAX_FIELDS do
      write_command('HDEL', budget.key, unpack(budget.gone, from, math.min(from + MAX_FIELDS - 1, #budget.gone)))
    end
    local ends = math.max(budget.used > 0 and budget.ends or 0, budget.last_end)
    if budget.charges and budget.held > 0 then
      -- Hits that leases hold may count until the end of the window in which they end, and are remembered.
      local counts_until = budget.last_end - budget.last_end % budget.window + budget.window
      ends = math.max(ends, counts_until, budget.last_end + check.ttl)
    end
    local sets_expiry = ends > budget.expires
    if sets_expiry then
      budget.expires = math.min(ends + check.ttl, 4294967295)
    end
    local b, fields = budget, {}
    local header = struct.pack(
      BUDGET_HEADER, b.ends, b.used, b.held, b.first, b.last, b.first_end, b.last_end, b.count, b.expires
    )
    for name, value in pairs(budget.changes) do
      fields[#fields + 1] = name
      fields[#fields + 1] = value
    end
    write_command('HSET', budget.key, 'p', budget.pending, 'h', header, unpack(fields))
    if sets_expiry then
      local millis = now.given and 3600000 or budget.expires * 1000 - math.floor(now.micros / 1000)
      write_command('PEXPIRE', budget.key, string.format('%.0f', millis))
    end
  end

  return { open = open, passes = passes, decide = decide, close = close }
end
