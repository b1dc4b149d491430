#!lua flags=allow-cross-slot-keys
-- First part of the script for commands on many slots that one node of a cluster serves, since Redis 7. A cluster accepts
-- declared keys of one slot only, so these commands declare none: the arguments of the checks are followed by as many
-- names of keys. A key that the node does not serve, or that is absent while its slot migrates, is an error when the
-- script first reads it; the calls on other keys are decided.
-- A command with an empty argument in place of the checks only reads its keys, to find out whether the server permits it.
if ARGV[2] == '' then
  for i = 3, #ARGV do
    local reply = redis.pcall('GET', ARGV[i])
    if type(reply) == 'table' and reply.err and not string.find(reply.err, 'WRONGTYPE', 1, true) then
      return reply
    end
  end
  return redis.status_reply('OK')
end
local KEYS, key_count = {}, (#ARGV - 1) / 2
for i = 1, key_count do
  KEYS[i] = ARGV[1 + key_count + i]
end
