"""Renders deploy/helm/tollgate, with both versions of Helm that tests/run.sh installs."""

import functools
import pathlib
import subprocess

import yaml

ROOT = pathlib.Path(__file__).parents[3]
CHART = "deploy/helm/tollgate"
VERSIONS = ["target/helm/helm", "target/helm/helm3"]


# libyaml's, where the package has it: the alerts are long.
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@functools.cache
def parsed(text):
    """A document; equal texts are parsed once."""
    return yaml.load(text, Loader)


def helm(program, *arguments, values=None):
    """The finished process."""
    given = ["--values", "-"] if values is not None else []
    return subprocess.run(
        [program, *arguments, *given], cwd=ROOT, check=False, capture_output=True, text=True,
        input=None if values is None else yaml.safe_dump(values),
    )


def complaints(process):
    """Its errors without the lines that name the links of the chart's files."""
    return "\n".join(line for line in process.stderr.splitlines() if "found symbolic link" not in line)


def rendered(program, *arguments, release="tollgate", values=None):
    """The documents, in order."""
    process = helm(program, "template", release, CHART, "--namespace", "tollgate", *arguments, values=values)
    if process.returncode:
        raise SystemExit(f"{program} {arguments} {values}: {complaints(process)}")
    documents = (parsed(text) for text in process.stdout.split("\n---\n"))
    return [document for document in documents if document]


def is_hook(document):
    return "helm.sh/hook" in (document["metadata"].get("annotations") or {})
