#!/usr/bin/env python3
"""Applies EnvoyFilters to a bootstrap, as Istio applies them to what it sends to a proxy.

usage: istio.py CONTEXT FILE... <BOOTSTRAP

Does what the files in deploy/istio need, and refuses all else: an unknown field, and a patch that finds nothing to change.
"""

import json
import sys

import yaml

MANAGER = "envoy.filters.network.http_connection_manager"


def refuse(problem):
    sys.exit(f"istio.py: {problem}")


def take(mapping, known, where):
    unknown = set(mapping) - set(known)
    if unknown:
        refuse(f"{where} has {', '.join(sorted(unknown))}")
    return mapping


def merge(into, patch):
    """Merges as protobuf does: mappings field by field, lists one behind the other, and the patch's scalars win."""
    for key, value in patch.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        elif isinstance(value, list) and isinstance(into.get(key), list):
            into[key] += value
        else:
            into[key] = value


def managers(bootstrap):
    for listener in bootstrap["static_resources"]["listeners"]:
        for chain in listener["filter_chains"]:
            for network_filter in chain["filters"]:
                if network_filter["name"] == MANAGER:
                    yield network_filter["typed_config"]


def hosts(bootstrap, match):
    take(match, ["vhost"], "routeConfiguration")
    wanted = take(match["vhost"], ["name", "route"], "vhost").get("name", "")
    for manager in managers(bootstrap):
        for host in manager["route_config"]["virtual_hosts"]:
            if wanted in ("", host["name"]):
                yield host


def http_filter(bootstrap, match, patch):
    take(match, ["context", "listener"], "match")
    chain = take(match["listener"], ["filterChain"], "listener")["filterChain"]
    wanted = take(take(chain, ["filter"], "filterChain")["filter"], ["name", "subFilter"], "filter")
    before = take(wanted["subFilter"], ["name"], "subFilter")["name"]
    if wanted["name"] != MANAGER or patch["operation"] != "INSERT_BEFORE":
        refuse("an HTTP_FILTER is inserted before another one")
    count = 0
    for manager in managers(bootstrap):
        names = [each["name"] for each in manager["http_filters"]]
        if before in names:
            manager["http_filters"].insert(names.index(before), patch["value"])
            count += 1
    return count


def network_filter(bootstrap, match, patch):
    take(match, ["context", "listener"], "match")
    chain = take(match["listener"], ["filterChain"], "listener")["filterChain"]
    wanted = take(take(chain, ["filter"], "filterChain")["filter"], ["name"], "filter")
    if wanted["name"] != MANAGER:
        refuse("a NETWORK_FILTER is the connection manager")
    found = list(managers(bootstrap))
    for manager in found:
        merge(manager, take(patch["value"], ["typed_config"], "value")["typed_config"])
    return len(found)


def virtual_host(bootstrap, match, patch):
    take(match, ["context", "routeConfiguration"], "match")
    found = list(hosts(bootstrap, match["routeConfiguration"]))
    for host in found:
        merge(host, patch["value"])
    return len(found)


def http_route(bootstrap, match, patch):
    take(match, ["context", "routeConfiguration"], "match")
    wanted = match["routeConfiguration"]["vhost"]["route"]["name"]
    found = [
        route
        for host in hosts(bootstrap, match["routeConfiguration"])
        for route in host["routes"]
        if route.get("name") == wanted
    ]
    for route in found:
        merge(route, patch["value"])
    return len(found)


def cluster(bootstrap, match, patch):
    take(match, ["context", "cluster"], "match")
    wanted = take(match["cluster"], ["service", "portNumber"], "cluster")
    name = f"outbound|{wanted['portNumber']}||{wanted['service']}"
    found = [each for each in bootstrap["static_resources"]["clusters"] if each["name"] == name]
    for each in found:
        merge(each, patch["value"])
    return len(found)


APPLY = {
    "HTTP_FILTER": http_filter,
    "NETWORK_FILTER": network_filter,
    "VIRTUAL_HOST": virtual_host,
    "HTTP_ROUTE": http_route,
    "CLUSTER": cluster,
}


def main():
    context, files = sys.argv[1], sys.argv[2:]
    bootstrap = yaml.safe_load(sys.stdin)
    for file in files:
        with open(file, encoding="utf-8") as text:
            documents = [document for document in yaml.safe_load_all(text) if document["kind"] == "EnvoyFilter"]
        for document in documents:
            take(document, ["apiVersion", "kind", "metadata", "spec"], file)
            if document["apiVersion"] != "networking.istio.io/v1alpha3":
                refuse(f"{file}: {document['apiVersion']}")
            spec = take(document["spec"], ["workloadSelector", "configPatches"], "spec")
            for patch in spec["configPatches"]:
                take(patch, ["applyTo", "match", "patch"], "a patch")
                take(patch["patch"], ["operation", "value"], "patch")
                if patch["match"]["context"] != context:
                    refuse(f"{file} is not for {context}")
                if patch["applyTo"] != "HTTP_FILTER" and patch["patch"]["operation"] != "MERGE":
                    refuse(f"{file}: {patch['patch']['operation']}")
                if APPLY[patch["applyTo"]](bootstrap, patch["match"], patch["patch"]) == 0:
                    refuse(f"{file}: {patch['applyTo']} of {document['metadata']['name']} finds nothing to change")
    json.dump(bootstrap, sys.stdout)


main()
