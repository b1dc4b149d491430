#!/usr/bin/env python3
"""Writes the SBOM of the program as CycloneDX 1.6: every crate in it, the base of the image, and the files that
are released.

usage: sbom.py --target TRIPLE [--file NAME=PATH]... [--image NAME@DIGEST]
"""

import argparse
import hashlib
import json
import pathlib
import re
import subprocess
import uuid

ROOT = pathlib.Path(__file__).parents[2]


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def checksums():
    """The checksums in Cargo.lock, by name and version."""
    entries = re.findall(
        r'name = "([^"]+)"\nversion = "([^"]+)"\nsource = "[^"]+"\nchecksum = "([0-9a-f]{64})"',
        (ROOT / "Cargo.lock").read_text(encoding="utf-8"),
    )
    return {(name, version): checksum for name, version, checksum in entries}


def linked(target):
    """Names and versions of the crates in the program. `cargo metadata` also has what only tests enable."""
    lines = output("cargo", "tree", "--locked", "--package", "tollgate", "--edges", "normal", "--target", target,
                   "--prefix", "none", "--format", "{p}").splitlines()
    return {(words[0], words[1].removeprefix("v")) for words in map(str.split, lines) if words}


def reached(metadata, packages, target):
    """The packages of the program, and which of them each needs."""
    names = linked(target)
    chosen = {each for each, package in packages.items() if (package["name"], package["version"]) in names}
    assert len(chosen) == len(names), "a crate of two sources"
    return {
        node["id"]: sorted(
            dep["pkg"] for dep in node["deps"]
            if dep["pkg"] in chosen and any(kind["kind"] is None for kind in dep["dep_kinds"])
        )
        for node in metadata["resolve"]["nodes"] if node["id"] in chosen
    }


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, known):
    # A macro's code runs in the compiler and is not part of the program.
    macro = all("proc-macro" in target["kind"] for target in package["targets"] if "custom-build" not in target["kind"])
    made = {
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "scope": "excluded" if macro else "required",
        "purl": reference(package),
    }
    if package["license"]:
        made["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    checksum = known.get((package["name"], package["version"]))
    if checksum:
        made["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        made["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return made


def bases():
    """The bases of the image, by their digests."""
    for line in (ROOT / "deploy/docker/Dockerfile").read_text(encoding="utf-8").splitlines():
        found = re.fullmatch(r"FROM (\S+?):(\S+?)@sha256:([0-9a-f]{64})( AS build)?", line)
        if found and not found[4]:
            yield {
                "type": "container", "bom-ref": f"base:{found[1]}", "name": found[1], "version": found[2],
                "hashes": [{"alg": "SHA-256", "content": found[3]}],
            }


def files(given):
    for each in given:
        name, path = each.split("=", 1)
        content = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
        yield {"type": "file", "bom-ref": f"file:{name}", "name": name, "hashes": [{"alg": "SHA-256", "content": content}]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--file", action="append", default=[])
    parser.add_argument("--image")
    flags = parser.parse_args()
    metadata = json.loads(output("cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", flags.target))
    packages = {package["id"]: package for package in metadata["packages"]}
    needs, known = reached(metadata, packages, flags.target), checksums()
    root = packages[metadata["resolve"]["root"]]
    parts = [component(packages[each], known) for each in sorted(needs) if packages[each] is not root]
    if flags.image:
        parts += bases()
    parts += files(flags.file)
    main_component = {**component(root, known), "type": "application", "purl": reference(root)}
    if flags.image:
        name, digest = flags.image.split("@sha256:")
        main_component |= {"type": "container", "name": name, "hashes": [{"alg": "SHA-256", "content": digest}]}
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": output("git", "log", "-1", "--format=%cI").strip(),
            "component": main_component,
            "properties": [{"name": "target", "value": flags.target}, {"name": "commit", "value": output("git", "rev-parse", "HEAD").strip()}],
        },
        "components": parts,
        "dependencies": [
            {"ref": reference(packages[each]), "dependsOn": sorted(reference(packages[need]) for need in needs[each])}
            for each in sorted(needs)
        ],
    }
    # The same for the same content.
    bom["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bom, sort_keys=True))}"
    print(json.dumps(bom, indent=1))


main()
