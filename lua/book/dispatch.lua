-- Runs the operation of the command.
return OPERATIONS[ARGV[1]]()
