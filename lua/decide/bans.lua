-- Bans of counters; twin of crates/core/src/ban/record.rs, which explains them. The record of a counter's bans stands in the
-- counter's cell, under the counter's id with kind 11:
--   a  when the last ban is forgiven, in seconds since the epoch; 0 without one
--   b  of a ban its end; otherwise the second after the one that follows the interval
--   c  the upper 12 bits: 4095 of a ban, otherwise the bad seconds; 5 bits: the level; 5 bits: the last second with hits,
--      modulo 32; 10 bits: the denied hits of that second less the admitted ones, plus 512
MAKE[11] = function()
  return {
    ends_at = function(a, b)
      return math.max(a, b)
    end,
  }
end

make_bans = function()
  local KIND, BANNED, MAX_BALANCE, ZERO = 11, 4095, 511, 512
  local ENFORCE, LIFT, FORGIVE = 1, 2, 3
  local MAX_WORD = 4294967295
  -- Records of a cell beyond which a counter gets none for its bans: the counters come first.
  local MAX_RECORDS = 65000
  local this_second = now.s % 32

  local function open(ban, cell)
    local a, b, c, at = read_record(cell, ban.id, KIND)
    local record = { a = a, b = b, c = c, at = at, forgiven_at = a, ends_at = b, bad = math.floor(c / 1048576) }
    record.level, record.second = math.floor(c / 32768) % 32, math.floor(c / 1024) % 32
    record.balance = c % 1024 - ZERO
    return record
  end

  local function close(ban, cell, record, has_room)
    local a, b, at = record.forgiven_at, record.ends_at, record.at
    local rest = record.bad == BANNED and 0 or record.second * 1024 + record.balance + ZERO
    local c = record.bad * 1048576 + record.level * 32768 + rest
    local ends = math.max(a, b)
    if ends <= now.s then
      if at then
        local from = state_position(cell, at)
        cell.ids = string.sub(cell.ids, 1, at * ID) .. string.sub(cell.ids, at * ID + ID + 1)
        cell.states = string.sub(cell.states, 1, from - 1) .. string.sub(cell.states, from + LARGE_STATE)
        cell.changed, cell.ends_sooner = true, true
        if cell.account then
          cell.account()
        end
      end
    elseif (a ~= record.a or b ~= record.b or c ~= record.c) and (at or has_room) then
      cell.ends_sooner = cell.ends_sooner or (at and ends < cell.ends and math.max(record.a, record.b) >= cell.ends)
      store_record(cell, ban.id, at, KIND, a, b, c)
      cell.ends = math.max(cell.ends, ends)
    end
  end

  local function is_active(record)
    return record.bad == BANNED and now.s < record.ends_at
  end

  local function is_open(record)
    return record.bad ~= BANNED and now.s < record.ends_at - 1
  end

  local function is_bad(ban, record)
    return record.balance >= (ban.grain > 1 and 1 or 0)
  end

  local function units(ban, hits)
    return math.min(math.floor((hits + now.us % ban.grain) / ban.grain), 2 * MAX_BALANCE + 1)
  end

  local function add(ban, record, admitted, denied)
    local less = math.max(record.balance - units(ban, admitted), -MAX_BALANCE)
    record.balance = math.min(less + units(ban, denied), MAX_BALANCE)
  end

  local function open_interval(ban, record)
    if is_open(record) then
      return
    end
    if record.forgiven_at <= now.s then
      record.forgiven_at, record.level = 0, 0
    end
    record.ends_at = math.min(now.s + ban.interval + 1, MAX_WORD)
    record.bad, record.second, record.balance = 0, this_second, 0
  end

  -- Sets the end of a ban of this level that begins now.
  local function ban_for(ban, record)
    local length = math.min(ban.duration * 2 ^ (record.level - 1), ban.max_duration)
    record.ends_at = math.min(now.s + length, MAX_WORD)
    local remembered = ban.max_duration > ban.duration and ban.forgive * record.level or 0
    record.forgiven_at = math.min(record.ends_at + remembered, MAX_WORD)
  end

  -- Begins a ban if one is due; returns whether it did.
  local function begin(ban, record)
    if record.bad == BANNED then
      if record.ends_at - now.s > ban.max_duration then
        ban_for(ban, record)
      end
      if is_active(record) then
        return false
      end
    end
    if ban.reported > 0 then
      open_interval(ban, record)
      add(ban, record, 0, ban.reported)
    end
    if
      record.bad == BANNED
      or now.s >= record.ends_at
      or record.second == this_second
      or not is_bad(ban, record)
      or record.bad + 1 < ban.threshold
    then
      return false
    end
    local left = math.ceil(math.max(record.forgiven_at - now.s, 0) / ban.forgive)
    record.level = math.min(math.min(left, record.level) + 1, ban.max_level)
    record.bad = BANNED
    ban_for(ban, record)
    return true
  end

  local function has_room(cell)
    return (cell.records or #cell.ids / ID) < MAX_RECORDS
  end

  -- The number of requests of a repeated call that pass: as many as pass together.
  local function passing(ask, a, b, c, times)
    local apply = algorithm_of(ask.kind).apply
    local low, high = 0, times
    while low < high do
      local middle = math.ceil((low + high) / 2)
      if apply(a, b, c, ask.hits, ask.p1, ask.p2, nil, now, middle, true) == 1 then
        low = middle
      else
        high = middle - 1
      end
    end
    return low
  end

  return {
    -- Settles the ban of a check before anything is charged: sets ask.banned if it denies, and ask.report, its part of the
    -- reply.
    settle = function(whole, ask)
      local ban = ask.ban
      local cell = whole.segment_of and whole.segment_of(ask.id) or whole
      local record = open(ban, cell)
      local is_new, active = false, is_active(record)
      local ends_at, level = record.ends_at, record.level
      if ban.effect == LIFT then
        if record.bad == BANNED then
          record.ends_at, record.bad, record.second, record.balance = 0, 0, 0, -ZERO
        end
      elseif ban.effect == FORGIVE then
        record.forgiven_at, record.ends_at = 0, 0
      elseif ask.hits > 0 then
        is_new = begin(ban, record)
        active, ends_at, level = is_active(record), record.ends_at, record.level
      end
      close(ban, cell, record, has_room(whole))
      ask.is_active = active
      ask.banned = active and ban.effect == ENFORCE and not ask.overdraws
      ask.report = active and struct.pack('<BI4B', is_new and 3 or 1, ends_at, level) or '\0'
    end,

    -- Counts the outcome of a check on the words a, b, c: the hits that were admitted, with the tokens charged ahead, or
    -- denied.
    count = function(whole, ask, a, b, c, times, is_admitted, tokens)
      if ask.hits <= 0 or ask.is_active or ask.withheld and ask.passes then
        return
      end
      local ban = ask.ban
      local admitted = (is_admitted and times or times > 1 and passing(ask, a, b, c, times) or 0) * ask.hits
      local denied = times * ask.hits - admitted
      local cell = whole.segment_of and whole.segment_of(ask.id) or whole
      local record = open(ban, cell)
      -- Another check of the call may have begun a ban.
      if is_active(record) or denied == 0 and not record.at then
        return
      elseif denied > 0 then
        open_interval(ban, record)
      end
      if is_open(record) then
        if record.second ~= this_second then
          record.bad = record.bad + (is_bad(ban, record) and 1 or 0)
          record.second, record.balance = this_second, 0
        end
        add(ban, record, admitted + tokens, denied)
      end
      close(ban, cell, record, has_room(whole))
    end,
  }
end
