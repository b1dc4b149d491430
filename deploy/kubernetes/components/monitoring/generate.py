#!/usr/bin/env python3
"""Regenerates prometheus-rule.yaml: the alerts of deploy/prometheus as a PrometheusRule object."""

import pathlib

here = pathlib.Path(__file__).parent
alerts = (here / "../../../prometheus/alerts.yaml").read_text(encoding="utf-8")
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
