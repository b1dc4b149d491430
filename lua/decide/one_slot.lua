-- First part of the script for commands that declare their keys: KEYS.
local across_slots = false
