-- Decides the calls that are left and fit the fast path. Definitions for the others follow below.
local place = 1
local one_call = struct.unpack('<I2', ARGV[2]) == #KEYS

-- The deferred calls, {first = the first key, last = the last one, times, place = position in the reply}; and their
-- keys: later calls on these are deferred too, to preserve the order.
local deferred, deferred_keys

-- An error as an element of the reply. Redis before version 7 gives its own errors as text. An error without the mark shows
-- that a call had no effect, so that it may be sent again.
local failed = false
local function failure(problem)
  failed = true
  local text = type(problem) == 'table' and problem.err or problem
  if half_written then
    text = 'ERR half written: ' .. text
  end
  return { err = string.find(text, '^%u+ ') and text or 'ERR ' .. text }
end

-- Leaves a call to the parts below.
local function defer(from, to, times)
  deferred, deferred_keys = deferred or {}, deferred_keys or {}
  deferred[#deferred + 1] = { first = from, last = to, times = times, place = place }
  for i = from, to do
    deferred_keys[KEYS[i]] = true
  end
end

-- Decides a call on counters of one cell; nil if it needs the parts below. raw: the content of its key, if any.
local function decide_cell(i, role, times, raw)
  fast_path = fast_path or make_fast_path()
  local is_withheld = role == ROLE_VETO or role == ROLE_NO_VETO or role == ROLE_VETO_COUNTED
  local base = role % ROLE_HAS_BAN < ROLE_BESIDE_SPECIAL and role % ROLE_BEFORE_TAIL
  if is_withheld and times == 1 or base == ROLE_INDEPENDENT or base == ROLE_PASSING_ONLY then
    return fast_path.decide_records(i, times, raw, is_withheld)
  end
end

-- Decides the calls from the first key that is left, as far as the fast path has them. A single counter, alone in its
-- cell, is read and written inline, and decided by decide_words: by the fast path, a peek, a refund or a limit override takes 1.2 to
-- 1.3 times as much of Redis' processor.
local first = 1
-- Whether a call was read: without one, an error is that the input is malformed.
local is_read = false
local function decide_calls()
  local KEYS, ARGV, pack, unpack = KEYS, ARGV, struct.pack, struct.unpack
  while first <= #KEYS do
    local i, packed, key, result = first, ARGV[1 + first], KEYS[first], nil
    is_read = false
    local keys, times, id, role, hits, p1, p2, extra = unpack('<I2I2I6Bdddc8', packed)
    if keys == 0 then
      error('a call without keys')
    end
    is_read, first, place = true, i + keys, place + 1
    local kind, algorithm, raw = math.floor(id / ID_KIND_UNIT) % KINDS, nil, nil
    local is_left = not reply[place]
    if is_left and keys == 1 and not (deferred and deferred_keys[key]) then
      algorithm = ALGORITHMS[kind] or algorithm_of(kind)
      raw = algorithm and read_cell(i)
    end
    local is_plain = role == ROLE_INDEPENDENT or role == ROLE_PASSING_ONLY
    local has_ban = role == ROLE_HAS_BAN or role == ROLE_HAS_BAN + ROLE_PASSING_ONLY
    local is_single = is_plain and #packed == ONE_CHECK_BYTES or has_ban and #packed == ONE_BANNED_CHECK_BYTES
      or role == ROLE_SHARED and #packed == ONE_SHARED_CHECK_BYTES
    if algorithm and is_single and (not raw or #raw == ONE_RECORD_BYTES) then
      local is_short, is_known = kind < KIND_OF_THREE_WORDS, true
      local layout = is_short and '<I3I4I6I4I4' or '<I3I4I6I4I2I2'
      local a, b, c, old_ends = 0, 0, 0, 0
      if raw then
        local head, known
        head, old_ends, known, a, b, c = unpack(layout, raw)
        c = is_short and 0 or c
        is_known = head == ONE_RECORD_HEAD and known == id
      end
      local a2, b2, c2, admitted
      a2, b2, c2, result, admitted =
        decide_words(algorithm, is_short, a, b, c, times, hits, p1, p2, extra, role % ROLE_BEFORE_TAIL == ROLE_PASSING_ONLY)
      if times > 1 and not is_plain then
        result = result .. '\0'
      end
      -- A denial makes a record of bans, and counts may outgrow their size.
      if not is_known or has_ban and admitted == 0 or not is_short and (b2 > 65535 or c2 > 65535) then
        result = nil
      elseif a2 ~= a or b2 ~= b or c2 ~= c then
        local ends = algorithm.ends_at(a2, b2, c2)
        if raw or ends > now.s then
          write_cell(i, pack(layout, ONE_RECORD_HEAD, ends, id, a2, b2, c2), ends, old_ends)
        end
      end
    elseif algorithm and type(raw) ~= 'table' then
      result = decide_cell(i, role, times, raw)
    end
    if is_left then
      if not result then
        defer(i, first - 1, times)
      end
      reply[place] = result or false
    end
  end
end

if one_call then
  decide_calls()
else
  while first <= #KEYS do
    local fine, problem = pcall(decide_calls)
    if not fine and not is_read then
      error(problem)
    elseif not fine then
      reply[place] = failure(problem)
    end
  end
end
if not deferred then
  return failed and reply or table.concat(reply)
end

-- The first of the deferred calls that are left.
local next_deferred = 1

-- Decides deferred calls in their order, up to the first one of which `decide` has no result. Returns the reply if none is left.
local function decide_deferred(decide)
  while deferred[next_deferred] do
    local call = deferred[next_deferred]
    half_written = false
    local fine, outcome = pcall(decide, call)
    if fine and not outcome then
      return nil
    elseif not fine and one_call then
      -- An error of the only call is that of the script.
      error(half_written and 'half written: ' .. (type(outcome) == 'table' and outcome.err or outcome) or outcome, 0)
    end
    reply[call.place] = fine and outcome or failure(outcome)
    next_deferred = next_deferred + 1
  end
  return failed and reply or table.concat(reply)
end
