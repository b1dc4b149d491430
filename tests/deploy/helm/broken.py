#!/usr/bin/env python3
"""Broken values: the chart refuses each, and names its path. Writes their number and those that it accepts as JSON."""

import json
import sys

import charts

# A key or a path of keys, its value, and the path that Helm is to name; by default the key itself.
BROKEN = [
    ("tls.enable", True, "/tls"),
    ("replica", 3, ""),
    ("replicas", 0),
    ("replicas", "three"),
    ("fullnameOverride", "Tollgate"),
    ("image.repository", "ghcr.io/tollgate:1.0"),
    ("image.tag", "latest"),
    ("image.digest", "sha256:abc"),
    ("image.pullPolicy", "Sometimes"),
    ("image.pullSecrets", ["Registry"], "/image/pullSecrets/0"),
    ("store.kind", "redis"),
    ("store.url", "redis.example.com:6379"),
    ("store.existingSecret", "Tollgate_store"),
    ("store.secretKey", "a b"),
    ("store.tls", True, "/store"),
    ("redis.image", "redis:latest"),
    ("rules.files", {"edge.json": "{}"}),
    ("rules.files", {"edge.yaml": 5}, "/rules/files/edge.yaml"),
    ("settings", {"LOG_LEVEL": "debug"}),
    ("settings", {"TOLLGATE_STORE": "memory"}, "/settings/TOLLGATE_STORE"),
    ("settings", {"TOLLGATE_WORKERS": 4}, "/settings/TOLLGATE_WORKERS"),
    ("settings", {"TOLLGATE_LOG_LEVEL": ["debug"]}, "/settings/TOLLGATE_LOG_LEVEL"),
    ("workers", 0),
    ("extraEnv", [{"value": "a"}], "/extraEnv/0"),
    ("resources.requests", {"cpu": "2", "memory": None}, "/resources/requests"),
    ("resources.limits.memory", "768 MiB"),
    ("autoscaling.cpuUtilization", 120),
    ("autoscaling.minReplicas", 0),
    ("autoscaling.requestsPerSecond", "150 k"),
    ("podDisruptionBudget.maxUnavailable", 0),
    ("terminationGracePeriodSeconds", 1),
    ("minReadySeconds", -1),
    ("spread.nodes", "Spread"),
    ("podLabels", {"app.kubernetes.io/name": "gate"}, "/podLabels/app.kubernetes.io/name"),
    ("nodeSelector", {"pool": "a b"}, "/nodeSelector/pool"),
    ("affinity.node", {}, "/affinity"),
    ("serviceAccount.create", "yes"),
    ("ipv6", "true"),
    ("tls.certManager.issuerRef.kind", "Authority"),
    ("operators.tokens", "secret", "/operators"),
    ("regions", {"enabled": True, "region": "us-east"}, "/regions/table"),
    ("regions.region", "US_EAST"),
    ("regions.service.type", "ExternalName"),
    ("regions.certManager", {"enabled": True, "dnsNames": []}, "/regions/certManager/dnsNames"),
    ("monitoring.interval", "15"),
    ("networkPolicy.clients", []),
    ("networkPolicy.clients", [{}], "/networkPolicy/clients/0"),
    ("networkPolicy.extraEgress", [{"ports": [{"port": 6379}]}], "/networkPolicy/extraEgress/0"),
    ("networkPolicy.dns", [{"ipBlock": {"cidr": "169.254.20.10"}}], "/networkPolicy/dns/0/ipBlock/cidr"),
    ("envoyGateway.namespace", ""),
    ("envoyGateway.redis.port", 70000),
    ("server.enabled", 1),
    ("test.image", "curlimages/curl:latest"),
    ("test.entries", []),
    ("test.requests", 0),
]
# Values that fit the schema each by itself, and the report of the chart.
CONTRADICTIONS = [
    ({}, "store: no Redis"),
    ({"store": {"kind": "memory", "url": "redis://a"}}, "store: a URL beside store.kind memory"),
    ({"store": {"url": "redis://a", "existingSecret": "a"}}, "store: url and existingSecret"),
    ({"store": {"url": "redis://a"}, "rules": {"files": {"a.yaml": ""}, "existingConfigMap": "a"}}, "rules: files and"),
    ({"store": {"kind": "memory"}, "regions": {"enabled": True, "region": "us", "table": {
        "generation": 1, "regions": {"us": {"address": "https://us:8444"}}}}}, "regions: store.kind memory;"),
    ({"store": {"url": "redis://a"}, "regions": {"enabled": True, "region": "eu", "table": {
        "generation": 1, "regions": {"us": {"address": "https://us:8444"}}}}}, 'regions.region: "eu" is not in'),
]


def nested(path, value):
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


def refused(program, values):
    """The report, or nothing if the chart renders."""
    process = charts.helm(program, "template", "tollgate", charts.CHART, values=values)
    return charts.complaints(process) if process.returncode else ""


def spelled(path):
    """A path as the schema's validator of Helm 4 spells it."""
    places = {"/podLabels/app.kubernetes.io/name": "/podLabels/app.kubernetes.io~1name"}
    return f"at '{places.get(path, path)}'"


def rounds(broken):
    """Rounds in which each section has one broken value: Helm reports all of a round, each with its path."""
    rest = [(each[0].split(".")[0], each) for each in broken]
    while rest:
        taken, left = {}, []
        for section, each in rest:
            if section in taken:
                left.append((section, each))
            else:
                taken[section] = each
        yield list(taken.values())
        rest = left


def main():
    found = []
    for taken in rounds(BROKEN):
        values, paths = {"store": {"kind": "memory"}}, {}
        for key, value, *rest in taken:
            for name, each in nested(key, value).items():
                values[name] = {**values.get(name, {}), **each} if isinstance(each, dict) else each
            paths[key, str(value)] = rest[0] if rest else f"/{key.replace('.', '/')}"
        report = refused(charts.VERSIONS[0], values)
        for broken, path in paths.items():
            if spelled(path) not in report:
                found.append(f"{broken}: expected {path}, and Helm reports: {report or 'nothing'}")
    for values, expected in CONTRADICTIONS:
        for program in charts.VERSIONS:
            report = refused(program, values)
            if expected not in report:
                found.append(f"{values}: expected {expected!r}, and {program} reports: {report or 'nothing'}")
    # Helm 3 has a validator of its own. It takes all at once, and reports each.
    together = {"store": {"kind": "redis", "tls": True}, "workers": 0, "ipv6": "true", "replica": 3}
    report = refused(charts.VERSIONS[1], together)
    for path in ["store.kind", "store: Additional property tls", "workers", "ipv6", "(root): Additional property replica"]:
        if f"- {path}" not in report:
            found.append(f"Helm 3 does not report {path}: {report}")
    json.dump({"broken": len(BROKEN) + len(CONTRADICTIONS), "accepted": found}, sys.stdout)


main()
