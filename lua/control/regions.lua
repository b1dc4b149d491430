-- Records of the region.

-- Replies a record of the region, KEYS[7], '' for none; or replaces it. ARGV: the record that is replaced, the
-- new one, '' to read; and the time for which it is kept, in milliseconds. Replies 1 if it was replaced.
OPERATIONS.region_tables = function()
  local record = redis.call('GET', KEYS[7]) or ''
  if ARGV[5] ~= '' and record == ARGV[4] then
    redis.call('SET', KEYS[7], ARGV[5], 'PX', ARGV[6])
    return 1
  end
  redis.call('PEXPIRE', KEYS[7], ARGV[6])
  return record
end
