-- Reads or replaces the record of a counter's loans between regions, its ledger, and with it what its cell has of them.
-- Composed with the parts of lua/decide that read and write cells.
--   KEYS[1]  the counter's cell
--   KEYS[2]  the ledger, a string that this script does not read
--   ARGV[1]  as in entry.lua
--   ARGV[2]  the counter: its id (6 bytes) and the algorithm's parameters (doubles)
--   ARGV[3]  '' to read; otherwise what to write, if the ledger is still ARGV[4] and the counter's label still the one given:
--            the label (4 bytes); the hits that may count now at most, or the time in microseconds at which a bucket may be full at
--            the latest, -1 for any (a double); until when hits are
--            borrowed and how many, until when hits are lent and how many (4 bytes each); microseconds by which a bucket will
--            be full later (a double); milliseconds until the ledger expires (a double)
--   ARGV[4]  the ledger that was read
--   ARGV[5]  the new ledger, '' for none
-- Replies whether it was written (1 or 0), and unless it was, the ledger or '', and: the time in seconds and microseconds
-- past it, the counter's label, its state (three words), until when hits are borrowed and how many, until when hits are lent
-- and how many (4 bytes each).
fast_path = make_fast_path()
loans = make_loans()
local id, _, p2 = struct.unpack('<c6dd', ARGV[2])
local kind = string.byte(id, ID_BYTES) % KINDS
local algorithm = algorithm_of(kind)

local function open()
  local raw = read_cell(1)
  if type(raw) == 'table' then
    segments = make_segments()
    return segments.open(1, { { id = id } })
  end
  return open_cell(raw)
end

local whole = open()
local cell = whole.segment_of and whole.segment_of(id) or whole
local ledger = redis.call('GET', KEYS[2]) or ''
local a, b, c, at, stored_kind = read_record(cell, id, kind)
local label = fast_path.label_of(kind, a, p2)

local function content()
  local borrowed_until, borrowed, lent_until, lent = loans.read(whole, id)
  local numbers = struct.pack(
    '<I4I4I4I4I4I4I4I4I4I4',
    now.s, now.us, label, a, b, c, borrowed_until, borrowed, lent_until, lent
  )
  return { 0, ledger, numbers }
end

local function write()
  local _, _, borrowed_until, borrowed, lent_until, lent, later, millis =
    struct.unpack('<I4dI4I4I4I4dd', ARGV[3])
  if kind == KIND_TOKEN_BUCKET and later > 0 then
    -- As a charge of that time, which leaves no more than an empty bucket.
    local _, a2, b2 = algorithm.apply(a, b, c, 1, later * BUCKET_TICKS_PER_MICRO, p2, nil, now, 1, true, p2, true)
    a, b = a2, b2
    store_record(cell, id, at, stored_kind, a, b, c)
    cell.ends = math.max(cell.ends, algorithm.ends_at(a, b, c))
  end
  loans.put(whole, id, KIND_BORROWED, borrowed_until, borrowed)
  if kind == KIND_TOKEN_BUCKET and lent > 0 then
    lent_until = math.max(lent_until, algorithm.ends_at(a, b, c))
  end
  loans.put(whole, id, KIND_LENT, lent_until, lent)
  if cell.changed or whole.changed then
    store_cell(1, whole)
  end
  if ARGV[5] == '' then
    redis.call('DEL', KEYS[2])
  else
    redis.call('SET', KEYS[2], ARGV[5], 'PX', string.format('%.0f', millis))
  end
end

local function is_within(most)
  if most < 0 then
    return true
  elseif kind == KIND_TOKEN_BUCKET then
    return a * 1000000 + math.ceil(b % BUCKET_SIZE_UNIT / BUCKET_TICKS_PER_MICRO) <= most
  end
  return algorithm.remaining(a, b, c, most, p2, 0, now) >= 0
end

local function is_unchanged()
  local old_label, most = struct.unpack('<I4d', ARGV[3])
  return ledger == ARGV[4] and label == old_label and is_within(most)
end

if ARGV[3] == '' or not is_unchanged() then
  return content()
end
write()
return { 1 }
