# The median of numbers that are separated by spaces.
function median(list,   parts, count, i, j, swap) {
    count = split(list, parts, " ")
    for (i = 2; i <= count; i++)
        for (j = i; j > 1 && parts[j] + 0 < parts[j - 1] + 0; j--) {
            swap = parts[j]; parts[j] = parts[j - 1]; parts[j - 1] = swap
        }
    return count % 2 ? parts[(count + 1) / 2] : (parts[count / 2] + parts[count / 2 + 1]) / 2
}
