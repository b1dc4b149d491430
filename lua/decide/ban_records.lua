-- Records of bans in cells of any form; bans.lua defines bans.
MAKE[KIND_BAN] = function()
  return {
    ends_at = function(a, b)
      return math.max(a, b)
    end,
  }
end

make_ban_records = function()
  -- Records of a cell beyond which a counter gets none for its bans: the counters come first.
  local MAX_RECORDS = 65000

  -- The cell or segment of a check's counter, and the record of its bans: open, with its words and its position, or nil.
  local function open(whole, check)
    local cell = whole.segment_of and whole.segment_of(check.id) or whole
    local a, b, c, at = read_record(cell, check.ban.id, KIND_BAN)
    local record = open_ban(a, b, c)
    record.a, record.b, record.c, record.at = a, b, c, at
    return cell, record
  end

  local function close(whole, check, cell, record)
    local a, b, c = ban_words(record)
    local ends = math.max(a, b)
    local has_room = record.at or (whole.records or #cell.ids / ID_BYTES) < MAX_RECORDS
    if ends <= now.s then
      if record.at then
        remove_record(cell, record.at, KIND_BAN)
      end
    elseif has_room and (a ~= record.a or b ~= record.b or c ~= record.c) then
      local before = record.at and math.max(record.a, record.b)
      cell.ends_sooner = cell.ends_sooner or (before and ends < cell.ends and before >= cell.ends)
      store_record(cell, check.ban.id, record.at, KIND_BAN, a, b, c)
      cell.ends = math.max(cell.ends, ends)
    end
  end

  return {
    -- Settles the ban of a check before anything is charged. Sets check.reported to the state of the ban that the reply has,
    -- check.is_new to whether the ban begins, and check.banned to whether it denies.
    settle = function(whole, check)
      local ban = check.ban
      local cell, record = open(whole, check)
      local reported = { active = record.active, ends_at = record.ends_at, level = record.level }
      if ban.effect == BAN_LIFT then
        if record.bad == BAN_BANNED then
          record.ends_at, record.bad, record.second, record.balance = 0, 0, 0, -BAN_BALANCE_ZERO
        end
      elseif ban.effect == BAN_FORGIVE then
        record.forgiven_at, record.ends_at = 0, 0
      elseif check.hits > 0 then
        check.is_new = begin_ban(ban, record)
        reported = record
      end
      close(whole, check, cell, record)
      check.reported = reported
      check.banned = reported.active and ban.effect == BAN_ENFORCE and not check.overdraws
    end,

    -- Counts the outcome of a check on the words a, b, c: the hits that were admitted, with the tokens charged ahead, or
    -- denied.
    count = function(whole, check, a, b, c, times, is_admitted, tokens)
      local hits = check.hits
      if hits <= 0 or check.reported.active or check.withheld and check.passes then
        return
      end
      local passing =
        passing_hits(is_admitted, algorithm_of(check.kind), a, b, c, times, hits, check.p1, check.p2)
      local cell, record = open(whole, check)
      -- Another check of the call may have begun a ban.
      if not record.active and (record.at or passing < times * hits) then
        count_hits(check.ban, record, passing + tokens, times * hits - passing)
        close(whole, check, cell, record)
      end
    end,
  }
end
