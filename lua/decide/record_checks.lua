-- Checks of counters with packed records, in cells of any form.

-- Decides a check, once; one with a bound is a charge in full, or any of a window with a carry or of a bucket with debt.
local function apply_check(check, a, b, c, hits, only_passing)
  -- Most checks need none of the functions below.
  if not check.carries then
    return algorithm_of(check.kind).apply(
      a, b, c, hits, check.p1, check.p2, nil, now, 1, only_passing, check.bound, check.overdraws and hits > 0
    )
  end

  -- The fixed window with a carry: the state is the end of the last of the windows, and the hits left for it.
  local function carry(limit, window, bound)
    local ends, _, following = algorithm_of(KIND_FIXED_WINDOW).counts(0, 0, window, now)
    local count = 0
    if a > now.s then
      count = b
      if a > ends then
        count = math.min((window > 0 and math.ceil((a - ends) / window) or 1) * limit + b, bound)
      end
    end
    local after = math.max(count + hits, 0)
    local admitted = hits < 0 or after <= limit
    if admitted or not only_passing then
      count = after
    end
    count = math.min(count, bound)
    local full = math.max(math.ceil(count / limit) - 1, 0)
    if window > 0 then
      full = math.min(full, math.floor((4294967295 - ends) / window))
      ends = ends + full * window
    elseif full > 0 then
      ends = following or error('outside of both windows at ' .. now.s)
    end
    return admitted and 1 or 0, ends, math.min(count - full * limit, 4294967295), 0
  end

  -- The fixed window that carries a share of its unused hits; twin of crates/core/src/algorithm/unused_hits.rs, which explains
  -- it. The bound is the maximum debt, and from CARRY_SHARE_UNIT on the share in percent.
  local function carry_unused(limit, window, percent, max_debt)
    local ends, _, following = algorithm_of(KIND_FIXED_WINDOW).counts(0, 0, window, now)
    local last = window > 0 and math.min(ends + window, 4294967295) or following
    if not last then
      error('outside of both windows at ' .. now.s)
    end
    local ceiling, count = limit + math.floor(limit * percent / 100), 0
    if a > ends then
      count = b
    elseif a > now.s and b >= ceiling then
      count = ceiling - limit + math.min(b - ceiling, max_debt)
    elseif a > now.s then
      count = math.max(ceiling - limit - math.floor((ceiling - b) * percent / 100), 0)
    end
    local after = math.max(count + hits, 0)
    local admitted = hits < 0 or after <= ceiling
    if admitted or not only_passing then
      count = after
    end
    if a > last and a <= last + 4 * (last - ends) then
      last = a
    end
    return admitted and 1 or 0, last, math.min(count, max_debt > 0 and ceiling + max_debt or count, 4294967295), 0
  end

  local percent = math.floor(check.bound / CARRY_SHARE_UNIT)
  if percent > 0 then
    return carry_unused(check.p1, check.p2, percent, check.bound % CARRY_SHARE_UNIT)
  end
  return carry(check.p1, check.p2, check.bound)
end

-- Whether a charge or a check passes after the preceding charges; changes only the simulated state.
local function record_passes(cell, check)
  cell = cell.segment_of and cell.segment_of(check.id) or cell
  local simulated = cell.simulated or {}
  cell.simulated = simulated
  local known = simulated[check.id] or { read_record(cell, check.id, check.kind) }
  local admitted, a, b, c = apply_check(check, known[1], known[2], known[3], check.hits, not check.overdraws)
  simulated[check.id] = { a, b, c }
  return admitted == 1
end

local function decide_record(cell, check, times)
  local whole = cell
  cell = cell.segment_of and cell.segment_of(check.id) or cell
  local algorithm = algorithm_of(check.kind)
  local a, b, c, at, kind = read_record(cell, check.id, check.kind)
  local passes = check.banned and 0 or check.vetoed and (check.passes and 1 or 0) or nil
  local is_charged = not check.banned and not check.withheld
  local is_short = check.kind < KIND_OF_THREE_WORDS
  local only_passing = check.role ~= ROLE_INDEPENDENT and check.role ~= ROLE_VETO_COUNTED
  local a2, b2, c2, result, admitted
  local tokens = 0
  if check.bound then
    admitted, a2, b2, c2 =
      apply_check(check, a, b, c, is_charged and check.hits or 0, only_passing and not check.overdraws)
    admitted = passes or admitted
    result = struct.pack(is_short and '<BI4I4' or '<BI4I4I4', admitted, a2, b2, c2)
  else
    a2, b2, c2, result, admitted, tokens = decide_words(
      algorithm, is_short, a, b, c, times, check.hits, check.p1, check.p2, check.extra, only_passing, passes, is_charged
    )
  end
  if check.banned then
    result = with_ban(result, times, check.reported, check.is_new)
    return check.share and fast_path.with_share(result, times, check.effective) or result
  end
  local ends = algorithm.ends_at(a2, b2, c2)
  -- Its previous expiry may have been that of the cell.
  cell.ends_sooner = cell.ends_sooner or (at and ends < cell.ends and algorithm.ends_at(a, b, c) >= cell.ends)
  if at and (a2 ~= a or b2 ~= b or c2 ~= c) or not at and ends > now.s then
    store_record(cell, check.id, at, kind, a2, b2, c2)
  end
  cell.ends = math.max(cell.ends, ends)
  if check.ban then
    ban_records.count(whole, check, a, b, c, times, admitted == 1, tokens)
    result = with_ban(result, times, check.reported, check.is_new)
  end
  if check.share then
    if check.effective then
      loans.prolong(cell, check, ends)
    end
    result = fast_path.with_share(result, times, check.effective)
  end
  return result
end
