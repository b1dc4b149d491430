#!/usr/bin/env python3
"""Compares the objects of the chart with those of kustomize, and writes the differences as a JSON list.

Standard input is a JSON object of what kustomize built, by the path of the overlay. The differences that there are to be
are the functions below; there are no others.
"""

import base64
import json
import re
import sys

import charts
import yaml

# An overlay, and the values that make the same of the chart.
PAIRS = {
    "deploy/kubernetes/overlays/dev": "deploy/helm/values/dev.yaml",
    "deploy/kubernetes/overlays/production": "deploy/helm/values/production.yaml",
    "deploy/kubernetes/overlays/two-regions/us-east": "deploy/helm/values/us-east.yaml",
    "deploy/kubernetes/overlays/two-regions/eu-west": "deploy/helm/values/eu-west.yaml",
    "tests/deploy/overlays/operators": "tests/deploy/helm/values/operators.yaml",
    "tests/deploy/overlays/sentinel": "tests/deploy/helm/values/sentinel.yaml",
}
# Objects beside an Envoy Gateway are files, not an overlay.
ENVOY_GATEWAY = ["network-policy.yaml", "overlay.yaml", "pod-monitor.yaml"]
HASH = re.compile(r"-[bcdfghkm24-9t]{10}$")
# The labels of a release, which have no effect on what the object does.
RELEASE = {
    "app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart",
    "app.kubernetes.io/part-of",
}
# Names of the Redis in the chart begin with the name of the release, so that a namespace may have two.
RENAMED = re.compile(r"tollgate-(redis(-cluster|-sentinel)?)\b(?!-ca)")
NAMED_LISTS = {"ports", "env", "volumes", "volumeMounts", "containers"}


def without_hash(text):
    """kustomize restarts pods by a hash in the name of a ConfigMap; the chart by a checksum in an annotation."""
    return HASH.sub("", text)


def without_release(value, inside=""):
    """Selectors and labels without those of the release, names without its name, and named lists in order of names."""
    if isinstance(value, dict):
        rest = {key: each for key, each in value.items() if key not in RELEASE and not key.startswith("checksum/")}
        # A checksum may be the only annotation.
        rest = {key: each for key, each in rest.items() if key != "annotations" or without_release(each)}
        return {key: without_release(each, key) for key, each in rest.items()}
    if isinstance(value, list):
        items = [without_release(each) for each in value]
        if inside in NAMED_LISTS and all(isinstance(each, dict) and "name" in each for each in items):
            items.sort(key=lambda each: each["name"])
        return items
    if isinstance(value, str) and "\n" not in value:
        return RENAMED.sub(r"\1", without_hash(value))
    return value


def as_data(name, text):
    """Files of YAML by what they mean: values have no comments."""
    return yaml.safe_load(text) if name.endswith((".yaml", ".yml")) else text.rstrip("\n")


def plain(document):
    """An object without the permitted differences."""
    document = without_release(document)
    meta = document["metadata"]
    # The base labels its own objects alone; the chart labels all.
    meta["labels"] = {key: each for key, each in (meta.get("labels") or {}).items() if key != "app.kubernetes.io/name"}
    # Empty and absent are the same.
    for field in ["labels", "annotations", "creationTimestamp"]:
        if not meta.get(field):
            meta.pop(field, None)
    kind = document["kind"]
    if kind == "ConfigMap":
        document["data"] = {name: as_data(name, text) for name, text in document["data"].items()}
    if kind == "Job":
        # Named by the release's revision, since a Job is immutable.
        meta["name"] = re.sub(r"-\d+$", "", meta["name"])
    if kind == "Secret":
        texts = {name: base64.b64decode(text).decode() for name, text in document["data"].items()}
        document["data"] = {name: RENAMED.sub(r"\1", text) for name, text in texts.items()}
    return document


def key(document):
    meta = document["metadata"]
    return f"{document['kind']}/{meta.get('namespace', '')}/{meta['name']}"


def by_key(documents):
    # `helm install --create-namespace` makes the namespace, and `helm test` is the chart's alone.
    kept = (plain(each) for each in documents if each["kind"] != "Namespace" and not charts.is_hook(each))
    return {key(each): each for each in kept}


def differences(path, left, right):
    if type(left) is not type(right):
        yield f"{path}: {left!r} of kustomize, {right!r} of the chart"
    elif isinstance(left, dict):
        for name in sorted({*left, *right}):
            if name not in left or name not in right:
                owner = "kustomize" if name in left else "the chart"
                yield f"{path}/{name}: only of {owner}: {left.get(name, right.get(name))!r}"[:300]
            else:
                yield from differences(f"{path}/{name}", left[name], right[name])
    elif isinstance(left, list) and len(left) == len(right):
        for index, (one, other) in enumerate(zip(left, right)):
            yield from differences(f"{path}/{index}", one, other)
    elif left != right:
        yield f"{path}: {left!r} of kustomize, {right!r} of the chart"[:600]


def main():
    overlays = json.load(sys.stdin)
    assert overlays.keys() == PAIRS.keys(), "an overlay without values, or values without an overlay"
    found = []
    for overlay, values in PAIRS.items():
        made = by_key(overlays[overlay])
        for program in charts.VERSIONS:
            chart = by_key(charts.rendered(program, "--values", values))
            found += differences(f"{program} {values}", made, chart)
    files = [yaml.load((charts.ROOT / "deploy/envoy-gateway" / name).read_text(), charts.Loader) for name in ENVOY_GATEWAY]
    chart = by_key(charts.rendered(charts.VERSIONS[0], "--values", "deploy/helm/values/envoy-gateway.yaml"))
    shared = {"PrometheusRule/tollgate/tollgate", "ConfigMap/tollgate/tollgate-dashboard"}
    beside = {name: each for name, each in chart.items() if name not in shared}
    assert shared <= chart.keys(), "Envoy Gateway's tollgate has no alerts"
    found += differences("envoy-gateway.yaml", by_key(files), beside)
    json.dump(found, sys.stdout)


main()
