#!/usr/bin/env python3
"""Writes prometheus-rule.yaml anew from the alerts in deploy/prometheus, which Kubernetes wants inside of an object."""

import pathlib

here = pathlib.Path(__file__).parent
alerts = (here / "../../../prometheus/alerts.yaml").read_text(encoding="utf-8")
groups = alerts[alerts.index("groups:\n") :]
head = """# Made of deploy/prometheus/alerts.yaml by generate.py; a test says when it is to be run again.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: tollgate
spec:
"""
lines = (f"  {line}" if line.strip() else "\n" for line in groups.splitlines(keepends=True))
(here / "prometheus-rule.yaml").write_text(head + "".join(lines), encoding="utf-8")
