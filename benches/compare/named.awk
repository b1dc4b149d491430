# Start of the tables of rows with targets: the rows' names, and of each line that was measured the row's id, which is
# in its second field with the target.
BEGIN { FS = "\t" }

FILENAME ~ /names$/ {
    split($0, field, "|")
    name[field[1]] = field[2]
    next
}

{
    split($2, row, " ")
    id = row[1]
    if (!(id in target)) order[++rows] = id
    target[id] = row[2]
}
