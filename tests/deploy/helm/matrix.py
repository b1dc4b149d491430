#!/usr/bin/env python3
"""Renders the chart for 30 combinations of values, and holds every object to the schemas of Kubernetes 1.29 to 1.34.

Writes as JSON a list of {"name", "values", "documents"}. Problems go to standard error, one a line.
"""

import importlib.resources
import itertools
import json
import re
import sys

import charts
import jsonschema
import referencing

KUBERNETES = [f"v1.{minor}.0" for minor in range(29, 35)]
# Groups of resources that others define.
OTHERS = ["cert-manager.io", "monitoring.coreos.com"]
COMBINATIONS = 30

TABLE = {"generation": 1, "regions": {"us-east": {"address": "https://tollgate.us-east.example.com:8444"}}}
# Each option with the values that it may add.
OPTIONS = {
    "store": [
        {"store": {"existingSecret": "tollgate-store"}},
        {"store": {"url": "rediss://user:password@redis.example.com:6379", "caSecret": "tollgate-redis-ca"}},
        {"store": {"kind": "memory"}},
        {"store": {"kind": "redis-cluster"}},
        {"store": {"kind": "redis-sentinel"}},
    ],
    "tls": [
        {},
        {"tls": {"enabled": True}},
        {"tls": {"enabled": True, "clientCertificates": False, "secret": "gate-tls", "certManager": {
            "enabled": True, "issuerRef": {"name": "internal", "kind": "ClusterIssuer"}}}},
    ],
    "operators": [{}, {"operators": {"enabled": True}}],
    "regions": [
        {},
        {"regions": {"enabled": True, "region": "us-east", "table": TABLE}},
        {"regions": {"enabled": True, "region": "us-east", "table": TABLE, "certManager": {
            "enabled": True, "dnsNames": ["tollgate.us-east.example.com"]}, "service": {
            "type": "ClusterIP", "annotations": {"example.com/internal": "true"}}}},
    ],
    "monitoring": [{}, {"monitoring": {"enabled": True, "labels": {"release": "prometheus"}}},
                   {"monitoring": {"enabled": True, "alerts": False, "dashboard": False}}],
    "networkPolicy": [{}, {"networkPolicy": {"enabled": True}}],
    "ipv6": [{}, {"ipv6": True}],
    "scaling": [{}, {"autoscaling": {"enabled": False}, "replicas": 2}, {"podDisruptionBudget": {"enabled": False}}],
    "rules": [{}, {"rules": {"files": {"a.yaml": "domain: a\n", "b.yml": {"domain": "b"}}}},
              {"rules": {"existingConfigMap": "edge-rules"}}],
    "pod": [
        {},
        {"nodeSelector": {"pool": "edge"}, "tolerations": [{"key": "edge", "operator": "Exists"}],
         "priorityClassName": "high", "podLabels": {"team": "edge"}, "podAnnotations": {"proxy.istio.io/config": None},
         "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
             {"matchExpressions": [{"key": "arch", "operator": "In", "values": ["amd64"]}]}]}}}},
        {"image": {"digest": f"sha256:{'0' * 64}", "pullSecrets": ["registry"]}, "settings": {"TOLLGATE_LOG_LEVEL": "debug"},
         "extraEnv": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]},
    ],
    "serviceAccount": [{}, {"serviceAccount": {"create": False}},
                       {"serviceAccount": {"name": "gate", "annotations": {"example.com/role": "gate"}}}],
    "envoyGateway": [{}, {"envoyGateway": {"enabled": True, "overlay": {"limits.yaml": {"domain": "*"}}}}],
    "test": [{}, {"test": {"enabled": False}}],
}


def combinations():
    """30 combinations, which do not change between runs, with every option beside nearly every other one."""
    for index in range(COMBINATIONS):
        # Strides that share no factor with most numbers of options keep the options apart.
        chosen = {name: (index * (1 + place // 2) + index // (2 + place)) % len(options)
                  for place, (name, options) in enumerate(OPTIONS.items())}
        # The regions need a Redis each.
        if chosen["store"] == 2:
            chosen["regions"] = 0
        values = {}
        for name, option in chosen.items():
            values.update(OPTIONS[name][option])
        yield chosen, values


class Schemas:
    """Kubernetes' schemas, each read once."""

    def __init__(self):
        self.root = importlib.resources.files("kubernetes_validate") / "kubernetes-json-schema"
        self.registries, self.validators = {}, {}

    def validator(self, version, document):
        api = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", document["apiVersion"])
        name = (version, f"{document['kind'].lower()}-{api}.json")
        if name not in self.validators:
            folder = self.root / f"{version}-local-strict"
            if version not in self.registries:
                definitions = json.loads((folder / "_definitions.json").read_text())
                self.registries[version] = referencing.Resource.from_contents(definitions) @ referencing.Registry()
            schema = json.loads((folder / name[1]).read_text())
            self.validators[name] = jsonschema.Draft202012Validator(schema, registry=self.registries[version])
        return self.validators[name]


def problems(documents):
    schemas = Schemas()
    for document, version in itertools.product(documents, KUBERNETES):
        if document["apiVersion"].split("/")[0] not in OTHERS:
            for error in schemas.validator(version, document).iter_errors(document):
                yield f"{document['kind']}/{document['metadata']['name']} as of {version}: {error.json_path}: {error.message}"


def leaves(value):
    """The texts in a value, without those that are too short to be found by chance."""
    if isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from leaves(each)
    elif isinstance(value, str) and len(value) > 3:
        yield value


def lost(values, documents):
    """Values that reach no object. A URL is encoded, and `memory` has none of the other stores' objects."""
    text = json.dumps(documents)
    kept = {name: each for name, each in values.items() if name != "store"}
    return [each for each in leaves(kept) if json.dumps(each)[1:-1] not in text]


def main():
    made, distinct, used = [], {}, set()
    for index, (chosen, values) in enumerate(combinations()):
        used.update(chosen.items())
        name = ["tollgate", "edge"][index % 2]
        # Helm 3, for every third: compare.py has both for each overlay.
        programs = charts.VERSIONS if index % 3 == 0 else charts.VERSIONS[:1]
        documents = [charts.rendered(program, release=name, values=values) for program in programs]
        assert not lost(values, documents[0]), f"{lost(values, documents[0])} of {values} is in no object"
        assert documents[0] == documents[-1], f"the versions of Helm differ for {values}"
        # Dashboards and alerts are long, and of one text.
        kept = [each for each in documents[0] if not each["metadata"]["name"].endswith("-dashboard")]
        distinct.update((json.dumps(each), each) for each in kept)
        made.append({"name": name, "values": values, "documents": kept})
    assert len({json.dumps(each["values"]) for each in made}) == COMBINATIONS, "combinations repeat"
    unused = {(name, place) for name, options in OPTIONS.items() for place in range(len(options))} - used
    assert not unused, f"no combination has {unused}"
    found = list(problems(distinct.values()))
    print(*found, sep="\n", end="", file=sys.stderr)
    json.dump(made, sys.stdout)
    sys.exit(1 if found else 0)


main()
