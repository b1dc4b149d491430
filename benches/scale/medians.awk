# The median of each column over all rounds of a row, in the order of the rows.
BEGIN { FS = OFS = "\t" }

# Columns up to the processors of the load generator identify a row.
NR == 1 {
    columns = NF
    sub(/^round\t/, "")
    print
    next
}

{
    id = $2
    for (i = 3; i <= 8; i++) id = id OFS $i
    if (!(id in seen)) order[++rows] = id
    seen[id] = 1
    for (i = 9; i <= columns; i++) figures[id, i] = figures[id, i] " " $i
}

END {
    for (row = 1; row <= rows; row++) {
        line = order[row]
        for (i = 9; i <= columns; i++) line = line OFS sprintf("%.6g", median(figures[order[row], i]))
        print line
    }
}
