-- Bans of counters; twin of crates/core/src/ban/, which explains them. Calls on cells with nothing but one counter
-- and its record of bans are decided here, before the definitions of the others: without that, a denial takes 1.8 times as much
-- of Redis' processor.
--
-- The record of a counter's bans stands in the counter's cell, under the counter's id with KIND_BAN, in three words:
--   a  when the last ban is forgiven, in seconds since the epoch; 0 without one
--   b  of a ban its end; otherwise the second after the one that follows the interval
--   c  from BAN_BAD_UNIT on: BAN_BANNED of a ban, otherwise the bad seconds; from BAN_LEVEL_UNIT on the level; from
--      BAN_SECOND_UNIT on the last second with hits, modulo 32; below, the denied hits of that second less the admitted
--      ones, plus BAN_BALANCE_ZERO
-- An open record is a table {forgiven_at, ends_at, bad, level, second, balance, active = whether it is that of an active
-- ban}; a ban is a table of the parameters.
fast_path = fast_path or make_fast_path()
local MAX_WORD = 4294967295
local this_second = now.s % (BAN_LEVEL_UNIT / BAN_SECOND_UNIT)

-- The ban at a position of an argument, and the position after it.
local function read_ban(packed, position)
  local ban, after = {}, nil
  ban.threshold, ban.interval, ban.duration, ban.max_duration, ban.forgive, ban.grain, ban.reported,
    ban.max_level, ban.effect, after =
    struct.unpack('<I2I2I4I4I4I4I2BB', packed, position)
  return ban, after
end

-- The id of the record of a counter's bans.
local function ban_id(id)
  local last = string.byte(id, ID_BYTES)
  return string.sub(id, 1, ID_BYTES - 1) .. string.char(last - last % KINDS + KIND_BAN)
end

local function open_ban(a, b, c)
  local bad = math.floor(c / BAN_BAD_UNIT)
  return {
    forgiven_at = a,
    ends_at = b,
    bad = bad,
    level = math.floor(c % BAN_BAD_UNIT / BAN_LEVEL_UNIT),
    second = math.floor(c % BAN_LEVEL_UNIT / BAN_SECOND_UNIT),
    balance = c % BAN_SECOND_UNIT - BAN_BALANCE_ZERO,
    active = bad == BAN_BANNED and now.s < b,
  }
end

local function ban_words(record)
  local rest = record.bad == BAN_BANNED and 0 or record.second * BAN_SECOND_UNIT + record.balance + BAN_BALANCE_ZERO
  return record.forgiven_at, record.ends_at, record.bad * BAN_BAD_UNIT + record.level * BAN_LEVEL_UNIT + rest
end

-- Whether at least as many hits were denied as admitted. Rounded hits may be as many without a denial.
local function is_bad(ban, record)
  return record.balance >= (ban.grain > 1 and 1 or 0)
end

-- Adds hits to the last second, in units of the record, rounded by the time so that many small numbers add up.
local function add_hits(ban, record, admitted, denied)
  local grain = ban.grain
  local rounding, most = now.us % grain, 2 * BAN_MAX_BALANCE + 1
  local less = record.balance - math.min(math.floor((admitted + rounding) / grain), most)
  local more = math.min(math.floor((denied + rounding) / grain), most)
  record.balance = math.min(math.max(less, -BAN_MAX_BALANCE) + more, BAN_MAX_BALANCE)
end

-- Whether the interval counts: one of a longer interval, or of a clock that was ahead by more than 10 s, would have too
-- many seconds.
local function is_kept(ban, record)
  local left = record.ends_at - now.s
  return left > 0 and left <= ban.interval + 11
end

local function has_interval(ban, record)
  return record.bad ~= BAN_BANNED and now.s < record.ends_at - 1 and is_kept(ban, record)
end

-- Begins an interval, unless one is open.
local function open_interval(ban, record)
  if has_interval(ban, record) then
    return
  end
  if record.forgiven_at <= now.s then
    record.forgiven_at, record.level = 0, 0
  end
  record.ends_at = math.min(now.s + ban.interval + 1, MAX_WORD)
  record.bad, record.second, record.balance = 0, this_second, 0
end

-- Sets the end of a ban of this level that begins now.
local function ban_from_now(ban, record)
  local length = math.min(ban.duration * 2 ^ (record.level - 1), ban.max_duration)
  record.ends_at = math.min(now.s + length, MAX_WORD)
  local remembered = ban.max_level > 1 and ban.forgive * record.level or 0
  record.forgiven_at = math.min(record.ends_at + remembered, MAX_WORD)
end

-- Begins a ban if one is due, before hits are decided. Returns whether it did.
local function begin_ban(ban, record)
  if record.bad == BAN_BANNED then
    if record.ends_at - now.s > ban.max_duration then
      -- Of an earlier policy, or of a clock that was ahead.
      ban_from_now(ban, record)
    end
    if record.active then
      return false
    end
  end
  if ban.reported > 0 then
    open_interval(ban, record)
    add_hits(ban, record, 0, ban.reported)
  end
  if
    record.bad == BAN_BANNED
    or not is_kept(ban, record)
    or record.second == this_second
    or not is_bad(ban, record)
    or record.bad + 1 < ban.threshold
  then
    return false
  end
  local left = math.ceil(math.max(record.forgiven_at - now.s, 0) / ban.forgive)
  record.level = math.min(math.min(left, record.level) + 1, ban.max_level)
  record.bad, record.active = BAN_BANNED, true
  ban_from_now(ban, record)
  return true
end

-- Counts the hits that a decision admitted, and those that it then denied.
local function count_hits(ban, record, admitted, denied)
  if denied > 0 then
    open_interval(ban, record)
  end
  if not has_interval(ban, record) then
    return
  end
  if record.second ~= this_second then
    record.bad = record.bad + (is_bad(ban, record) and 1 or 0)
    record.second, record.balance = this_second, 0
  end
  add_hits(ban, record, admitted, denied)
end

-- The hits admitted of a call that may be repeated: as many as pass together.
local function passing_hits(is_admitted, algorithm, a, b, c, times, hits, p1, p2)
  local low, high = is_admitted and times or 0, is_admitted and times or times - 1
  while low < high do
    local middle = math.ceil((low + high) / 2)
    if algorithm.apply(a, b, c, hits, p1, p2, nil, now, middle, true) == 1 then
      low = middle
    else
      high = middle - 1
    end
  end
  return low * hits
end

-- A check's part of the reply, with that of its ban.
local function with_ban(result, times, record, is_new)
  if not record.active then
    return times > 1 and result .. '\0' or result
  end
  if times == 1 then
    result = string.char(string.byte(result) + REPLY_HAS_BAN) .. string.sub(result, 2)
  end
  local state = is_new and REPLY_BAN_ACTIVE + REPLY_BAN_NEW or REPLY_BAN_ACTIVE
  return result .. struct.pack('<BI4B', state, record.ends_at, record.level)
end

-- Returns the result of a call on one counter with a ban, in a cell of its own; or nil if there is more to it.
local function decide_banned(call)
  local i, times, packed = call.first, call.times, ARGV[1 + call.first]
  local raw = call.last == i and #packed == ONE_BANNED_CHECK_BYTES and read_cell(i)
  if not raw or #raw ~= ONE_RECORD_BYTES and #raw ~= ONE_RECORD_BYTES + ID_BYTES + LARGE_STATE_BYTES then
    return nil
  end
  local id, role, hits, p1, p2, extra = struct.unpack('<c6Bdddc8', packed, CALL_BYTES + 1)
  local kind = string.byte(id, ID_BYTES) % KINDS
  local is_short, algorithm = kind < KIND_OF_THREE_WORDS, algorithm_of(kind)
  if not algorithm then
    return nil
  end
  local ban = read_ban(packed, ONE_CHECK_BYTES + 1)
  -- Without a role of all-or-none charging, an overdraft, a refund or a read.
  if role % ROLE_BEFORE_TAIL ~= ROLE_INDEPENDENT and role % ROLE_BEFORE_TAIL ~= ROLE_PASSING_ONLY or role < ROLE_HAS_BAN
    or role % ROLE_HAS_BAN >= ROLE_OVERDRAWS or hits <= 0 or ban.effect > BAN_ENFORCE then
    return nil
  end
  local layout, record_id = is_short and '<I4I4' or '<I4I2I2', ban_id(id)
  local format, count, old_ends, known = struct.unpack('<BI2I4c6', raw)
  local second = CELL_HEADER_BYTES + ID_BYTES
  if format ~= PACKED_FORMAT or known ~= id
    or count == 2 and string.sub(raw, second + 1, second + ID_BYTES) ~= record_id then
    return nil
  end
  local a, b, c = struct.unpack(layout, raw, CELL_HEADER_BYTES + 1 + count * ID_BYTES)
  c = is_short and 0 or c
  local ra, rb, rc = 0, 0, 0
  if count == 2 then
    ra, rb, rc = struct.unpack('<I4I4I4', raw, ONE_RECORD_BYTES + ID_BYTES + 1)
  end
  local record = open_ban(ra, rb, rc)
  local is_new = begin_ban(ban, record)
  local is_denied = record.active and ban.effect == BAN_ENFORCE
  local only_passing = role % ROLE_BEFORE_TAIL == ROLE_PASSING_ONLY
  local a2, b2, c2, result, admitted, tokens =
    decide_words(algorithm, is_short, a, b, c, times, hits, p1, p2, extra, only_passing, is_denied and 0 or nil)
  if is_denied then
    a2, b2, c2 = a, b, c
  elseif not record.active then
    local passing = passing_hits(admitted == 1, algorithm, a, b, c, times, hits, p1, p2)
    count_hits(ban, record, passing + tokens, times * hits - passing)
  end
  if not is_short and math.max(b2, c2) > 65535 then
    return nil
  end
  local ra2, rb2, rc2 = ban_words(record)
  local ends = algorithm.ends_at(a2, b2, c2)
  local record_ends = math.max(ra2, rb2)
  local has_record = record_ends > now.s
  if a2 ~= a or b2 ~= b or c2 ~= c or ra2 ~= ra or rb2 ~= rb or rc2 ~= rc or has_record ~= (count == 2) then
    local state, last_end = struct.pack(layout, a2, b2, c2), ends
    if has_record then
      last_end, id = math.max(ends, record_ends), id .. record_id
      state = state .. struct.pack('<I4I4I4', ra2, rb2, rc2)
    end
    write_cell(i, struct.pack('<BI2I4', PACKED_FORMAT, has_record and 2 or 1, last_end) .. id .. state, last_end, old_ends)
  end
  return with_ban(result, times, record, is_new)
end

do
  local all = decide_deferred(decide_banned)
  if all then
    return all
  end
end
