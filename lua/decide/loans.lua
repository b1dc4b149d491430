-- Loans between regions, in cells of any form: what the region has borrowed and lent of a counter that it shares with other
-- regions; twin of crates/core/src/algorithm/effective_limit.rs, which explains them.
--
-- They stand in the counter's cell, under the counter's id with KIND_BORROWED and KIND_LENT, in two words:
--   a  of windows the end of the last one that it counts in; otherwise the second at which it ends
--   b  hits
-- What a bucket has lent lasts for the time in which the bucket fills longer, and until it is full, or until the region
-- settles it: an end makes no tokens.
MAKE[KIND_BORROWED] = function()
  return {
    ends_at = function(a)
      return a
    end,
  }
end
MAKE[KIND_LENT] = MAKE[KIND_BORROWED]

make_loans = function()
  -- The hits of a record of this kind that count at a label.
  local function amount_of(cell, id, kind, label)
    local until_label, hits, _, at = read_record(cell, fast_path.loan_id(id, kind), kind)
    return at and label <= until_label and hits or 0, at
  end

  return {
    -- Borrowed and lent hits of a counter, each as a label and hits.
    read = function(whole, id)
      local cell = whole.segment_of and whole.segment_of(id) or whole
      local borrowed_until, borrowed = read_record(cell, fast_path.loan_id(id, KIND_BORROWED), KIND_BORROWED)
      local lent_until, lent = read_record(cell, fast_path.loan_id(id, KIND_LENT), KIND_LENT)
      return borrowed_until, borrowed, lent_until, lent
    end,

    -- Sets the limit of a check of a counter that has loans: check.p1 and check.effective.
    settle = function(whole, check, packed)
      local cell = whole.segment_of and whole.segment_of(check.id) or whole
      local a = read_record(cell, check.id, check.kind)
      local label = fast_path.label_of(check.kind, a, check.p2)
      local borrowed, borrowed_at = amount_of(cell, check.id, KIND_BORROWED, label)
      local lent, lent_at = amount_of(cell, check.id, KIND_LENT, label)
      if borrowed_at or lent_at then
        check.effective, check.p1 = fast_path.effective_limit(packed, check.share, check.kind, borrowed, lent)
      end
    end,

    -- Replaces a record of a counter; one without hits is removed.
    put = function(whole, id, kind, until_label, hits)
      local cell = whole.segment_of and whole.segment_of(id) or whole
      id = fast_path.loan_id(id, kind)
      local old_label, old_hits, _, at = read_record(cell, id, kind)
      if hits > 0 and until_label > now.s then
        if not at or old_label ~= until_label or old_hits ~= hits then
          store_record(cell, id, at, kind, until_label, hits, 0)
          cell.ends, cell.ends_sooner = math.max(cell.ends, until_label), true
        end
      elseif at then
        remove_record(cell, at, kind)
      end
    end,

    -- Keeps what a bucket has lent until the bucket is full. ends: the second at which it is.
    prolong = function(cell, check, ends)
      if check.kind ~= KIND_TOKEN_BUCKET then
        return
      end
      local id = fast_path.loan_id(check.id, KIND_LENT)
      local until_label, hits, _, at = read_record(cell, id, KIND_LENT)
      if at and until_label > now.s and until_label < ends then
        store_record(cell, id, at, KIND_LENT, ends, hits, 0)
        cell.ends = math.max(cell.ends, ends)
      end
    end,
  }
end
