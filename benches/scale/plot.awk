# A plot of decisions per second, measured and modelled, after model.awk: by shards, and by processors of tollgate.
BEGIN { WIDTH = 420; HEIGHT = 300; LEFT = 70; TOP = 40; GAP = 90 }

# A round number that is not below this one.
function ceiling(number,   unit) {
    unit = 1
    while (unit * 10 < number) unit *= 10
    return number <= unit * 2 ? unit * 2 : number <= unit * 5 ? unit * 5 : unit * 10
}

function text(x, y, anchor, words) {
    printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, words
}

# One panel: the rows of a series, by the values of `at`.
function panel(number, name, title, at,   left, row, most_x, most_y, x, y, predicted, path, step, fill) {
    left = LEFT + (number - 1) * (WIDTH + GAP)
    for (row = 1; row <= rows; row++) if (series[row] == name) {
        predicted = capacity(workload[row], service[row], shards[row], redis[row], load[row])
        if (at[row] > most_x) most_x = at[row]
        if (rate[row] > most_y) most_y = rate[row]
        if (predicted > most_y) most_y = predicted
    }
    if (most_x == 0) return
    most_y = ceiling(most_y)
    printf "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#888\"/>\n", left, TOP, WIDTH, HEIGHT
    text(left + WIDTH / 2, TOP - 14, "middle", title)
    for (step = 0; step <= 4; step++) {
        y = TOP + HEIGHT - step * HEIGHT / 4
        text(left - 6, y + 4, "end", sprintf("%dk", most_y * step / 4000))
        if (step > 0 && step < 4)
            printf "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", left, y, left + WIDTH, y
    }
    for (row = 1; row <= rows; row++) if (series[row] == name) {
        x = left + WIDTH * at[row] / (most_x + 0.5)
        predicted = capacity(workload[row], service[row], shards[row], redis[row], load[row])
        path = path (path == "" ? "M" : " L") sprintf("%.1f %.1f", x, TOP + HEIGHT - HEIGHT * predicted / most_y)
        y = TOP + HEIGHT - HEIGHT * rate[row] / most_y
        fill = load[row] > 0 && load_busy[row] < 0.8 ? "#1f5fa8" : "#fff"
        printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\" stroke=\"#1f5fa8\"/>\n", x, y, fill
        text(x, TOP + HEIGHT + 18, "middle", at[row])
    }
    printf "<path d=\"%s\" fill=\"none\" stroke=\"#c0392b\" stroke-dasharray=\"5 4\"/>\n", path
}

END {
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n", \
        LEFT + 2 * WIDTH + GAP + 20, TOP + HEIGHT + 60
    print "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
    panel(1, "shards", "Decisions per second by shards (strict)", shards)
    panel(2, "workers", "Decisions per second by processors of tollgate (memory)", service)
    text(LEFT, TOP + HEIGHT + 44, "start", \
        "Points: measured; hollow where the load generator or shared processors limit. Line: the model.")
    print "</svg>"
}
