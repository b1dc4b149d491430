#!/usr/bin/env python3
"""Compares two reports of benches/compare.sh. Writes a Markdown table and exits with 1 if a row got slower.

usage: regressions.py BASE HEAD
"""

import re
import sys

# The spread of a ratio between runs on a shared machine is about 5 %.
TOLERANCE = 1.10


def rows(path):
    """The service's and Redis' CPU of each row, in microseconds, and the row of bare gRPC."""
    found = {}
    with open(path, encoding="utf-8") as report:
        for line in report:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            times = [re.fullmatch(r"([0-9.]+) µs", cell) for cell in cells]
            if len(cells) >= 6 and times[1] and "F" not in found.get(cells[0], ()):
                found.setdefault(cells[0], (float(times[1][1]), float(times[4][1]) if times[4] else None))
    if not found:
        sys.exit(f"{path} has no rows")
    return found


def main():
    base, head = rows(sys.argv[1]), rows(sys.argv[2])
    floor = "bare tonic, 1 key"
    scale = base[floor][0] / head[floor][0]
    lines, slower = [], False
    for name, (service, redis) in head.items():
        if name == floor or name not in base:
            continue
        cells = []
        for before, after in zip(base[name], (service, redis)):
            # What costs nothing has no ratio.
            if before is None or after is None or before < 0.1:
                cells.append("–")
                continue
            ratio = after * scale / before
            slower |= ratio > TOLERANCE
            mark = "**" if ratio > TOLERANCE else ""
            cells.append(f"{mark}{before:.2f} → {after * scale:.2f} µs ({ratio:.2f}){mark}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    if slower:
        print("## Benchmarks: slower\n\nCPU time per decision, scaled by that of bare gRPC in each run; more than "
              f"{TOLERANCE:.2f} is bold. A shared runner is noisy: run the job again before a conclusion.\n")
        print("| row | service | Redis |\n|---|---|---|", *lines, sep="\n")
    else:
        print(f"no row is slower by more than {TOLERANCE:.2f}", file=sys.stderr)
    sys.exit(1 if slower else 0)


main()
