#!/usr/bin/env python3
"""Regenerates what follows from deploy/prometheus/alerts.yaml: the PrometheusRule, and the lists of runbooks in docs."""

import pathlib
import re

here = pathlib.Path(__file__).parent
root = here / "../../../.."
alerts = (root / "deploy/prometheus/alerts.yaml").read_text(encoding="utf-8")
groups = alerts[alerts.index("groups:\n") :]
head = """# Generated from deploy/prometheus/alerts.yaml by generate.py; a test fails when it is stale.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: tollgate
spec:
"""
lines = (f"  {line}" if line.strip() else "\n" for line in groups.splitlines(keepends=True))
(here / "prometheus-rule.yaml").write_text(head + "".join(lines), encoding="utf-8")


def replace_rows(page, row, rows):
    """Replaces the lines of a page that match `row`, which follow each other, by `rows`."""
    path = root / page
    kept = path.read_text(encoding="utf-8").splitlines(keepends=True)
    first = next(number for number, line in enumerate(kept) if re.match(row, line))
    kept = [line for line in kept if not re.match(row, line)]
    path.write_text("".join(kept[:first] + rows + kept[first:]), encoding="utf-8")


listed = re.findall(r"- alert: (\w+)\n.*?severity: (\w+).*?docs/runbooks/(\S+)", groups, re.DOTALL)
table = [f"| [{alert}]({page}) | {severity} |\n" for alert, severity, page in listed]
replace_rows("docs/runbooks/README.md", r"\| \[Tollgate", table)
summary = [f"  - [{alert}](runbooks/{page})\n" for alert, _, page in listed]
replace_rows("docs/SUMMARY.md", r"  - \[Tollgate\w+\]\(runbooks/", summary)
