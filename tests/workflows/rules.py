#!/usr/bin/env python3
"""Holds .github/workflows to rules of their security. Writes what is wrong as a JSON list."""

import json
import pathlib
import re
import sys

import yaml

ROOT = pathlib.Path(__file__).parents[2]
PINNED = re.compile(r"^\s*(?:- )?uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")
IMAGE = re.compile(r"@sha256:[0-9a-f]{64}$")
# Commands that are a line each; all else is a script, which dry_run.py runs.
COMMANDS = ["git config --global --add safe.directory", "cargo ", "rustup toolchain install", "sudo apt-get install",
            'echo "$NUMBER" >', ".ci/run", ".github/scripts/"]
# Dry runs: the jobs whose commands they run.
SCRIPTED = re.compile(r"\.github/scripts/([\w.]+)")


def rules(name, text):
    workflow = yaml.safe_load(text)
    for line in text.splitlines():
        if "uses:" in line and not PINNED.match(line):
            yield f"no commit and version: {line.strip()}"
    if "permissions" not in workflow:
        yield "the permissions are the repository's default"
    if "write" in str(workflow.get("permissions")):
        yield "all jobs may write"
    # `on` is true for YAML 1.1.
    triggers = workflow.get("on", workflow.get(True))
    if "pull_request_target" in triggers:
        yield "code of a pull request runs with secrets"
    for job, body in workflow["jobs"].items():
        if "timeout-minutes" not in body:
            yield f"{job} has no time-out"
        if "container" in body and not IMAGE.search(body["container"]["image"]):
            yield f"{job} runs in an image without a digest"
        for step in body["steps"]:
            if "checkout@" in step.get("uses", "") and step.get("with", {}).get("persist-credentials") is not False:
                yield f"{job} leaves its token in the checkout"
            command = step.get("run", "")
            # Texts of others would be code.
            if "${{" in command:
                yield f"{job}: an expression in a command: {command}"
            if command and "\n" not in command.strip() and not command.startswith(tuple(COMMANDS)):
                yield f"{job}: a command that is no script: {command}"


def main():
    found, used = [], set()
    for path in sorted((ROOT / ".github/workflows").iterdir()):
        text = path.read_text(encoding="utf-8")
        found += [f"{path.name}: {problem}" for problem in rules(path.name, text)]
        used.update(SCRIPTED.findall(text))
    scripts = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / ".github/scripts").iterdir()}
    # Scripts of scripts.
    for name, text in scripts.items():
        used.update(other for other in scripts if other in text and other != name)
    found += [f"nothing runs {name}" for name in sorted(scripts.keys() - used)]
    found += [f"there is no script {name}" for name in sorted(used - scripts.keys())]
    json.dump(found, sys.stdout)


main()
