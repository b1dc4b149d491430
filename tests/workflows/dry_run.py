#!/usr/bin/env python3
"""Runs the steps of a workflow in .github/workflows that are commands, in a copy of the repository, with stand-ins for the
programs that reach others. Writes what is wrong as a JSON list.

usage: dry_run.py release|benchmarks|fuzz|audit
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import yaml

ROOT = pathlib.Path(__file__).parents[2]
STAND_INS = ROOT / "tests/workflows/stand_ins"
VERSION = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(encoding="utf-8"), re.MULTILINE)[1]
DIGEST = {"amd64": "sha256:" + "a" * 64, "arm64": "sha256:" + "b" * 64, "image": "sha256:" + "c" * 64, "chart": "sha256:" + "d" * 64}


# Files that no script needs. cargo wants to see the main file of each crate.
NEEDLESS = re.compile(
    r"(docs|tests(?!/fixtures)|fuzz/corpus|lua|proto)/|(src|crates/[^/]+/src)/(?!(lib|main)\.rs$)|benches/(?!compare\.sh$)"
)


class Run:
    """A copy of the repository, and the variables of a workflow's run in it."""

    def __init__(self, directory):
        self.root, self.log = directory / "repository", directory / "log"
        files = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                               capture_output=True, text=True).stdout.split("\0")
        for name in (name for name in files if (ROOT / name).is_file() and not NEEDLESS.match(name)):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.root / name, follow_symlinks=False)
        # What the commit of a release does.
        changes = self.root / "CHANGELOG.md"
        changes.write_text(changes.read_text(encoding="utf-8").replace(
            "## [Unreleased]\n", f"## [Unreleased]\n\n## [{VERSION}] - 2026-11-23\n", 1), encoding="utf-8")
        self.outputs = directory / "outputs"
        self.variables = {
            **os.environ, "PATH": f"{STAND_INS}:{os.environ['PATH']}", "LOG": str(self.log), "RELEASED": VERSION,
            "REAL_HELM": str(ROOT / "target/helm/helm"), "REAL_CARGO": shutil.which("cargo"), "CARGO_NET_OFFLINE": "true",
            "GITHUB_REF_NAME": f"v{VERSION}", "GITHUB_ACTOR": "releaser", "GITHUB_REPOSITORY": "tollgate-rs/tollgate",
            "GITHUB_OUTPUT": str(self.outputs), "GIT_CONFIG_GLOBAL": "/dev/null",
        }
        for name in ["AUTHOR", "COMMITTER"]:
            self.variables |= {f"GIT_{name}_NAME": "tests", f"GIT_{name}_EMAIL": "tests@localhost"}
        self.log.touch()
        for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "release"]):
            self.run(["git", *arguments])

    def run(self, command, **variables):
        return subprocess.run(command, cwd=self.root, env=self.variables | variables, check=False, capture_output=True, text=True)

    def calls(self, *names):
        """The calls of stand-ins since the last time."""
        lines = [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]
        self.log.write_text("", encoding="utf-8")
        return [line for line in lines if not names or line[0] in names]

    def job(self, workflow, job, context):
        """Runs the commands of a job; `context` has the values of expressions. Returns the outputs of its steps."""
        document = yaml.safe_load((self.root / ".github/workflows" / workflow).read_text(encoding="utf-8"))
        steps = document["jobs"][job]["steps"]
        context = dict(context)

        def value(text):
            def known(found):
                return context[found[1]]
            return re.sub(r"\$\{\{ ([^}]+) \}\}", known, str(text))

        environment = {**document.get("env", {}), **document["jobs"][job].get("env", {})}
        for step in steps:
            if "run" not in step:
                continue
            assert "${{" not in step["run"], f"an expression in a command: {step['run']}"
            self.outputs.write_text("", encoding="utf-8")
            variables = {name: value(text) for name, text in {**environment, **step.get("env", {})}.items()}
            # The shell that runners use.
            finished = self.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], **variables)
            assert finished.returncode == 0, f"{step['run']}: {finished.stdout}{finished.stderr}"
            for line in self.outputs.read_text(encoding="utf-8").splitlines():
                name, text = line.split("=", 1)
                context[f"steps.{step['id']}.outputs.{name}"] = text
        return {name: text for name, text in context.items() if name.startswith("steps.")}


def expect(actual, expected, of):
    assert actual == expected, f"{of}: expected {expected!r}, got {actual!r}"


def checked_sbom(run, bom, target):
    parts = {(part["name"], part["version"]): part for part in bom["components"] if part["type"] == "library"}
    tree = run.run(["cargo", "tree", "--locked", "--package", "tollgate", "--edges", "normal", "--target", target, "--prefix",
                    "none", "--format", "{p}|{l}"]).stdout.splitlines()
    lines = (re.match(r"(\S+) v(\S+).*\|(.*?)(?: \(\*\))?$", line).groups() for line in tree if line)
    licences = {(name, version): licence for name, version, licence in lines if name != "tollgate"}
    expect(parts.keys(), licences.keys(), "the crates in the SBOM")
    metadata = json.loads(run.run(["cargo", "metadata", "--format-version", "1", "--locked"]).stdout)
    known = {(each["name"], each["version"]): each for each in metadata["packages"]}
    for key, part in parts.items():
        expect(part["licenses"][0]["expression"], licences[key].replace("/", " OR "), f"the licence of {key}")
        # Crates of this workspace have no checksum, all others have.
        expect("hashes" in part, known[key]["source"] is not None, f"a checksum of {key}")
    references = {part["bom-ref"] for part in bom["components"]} | {bom["metadata"]["component"]["bom-ref"]}
    expect(len(references), len(bom["components"]) + 1, "references of the SBOM")
    for each in bom["dependencies"]:
        assert {each["ref"], *each["dependsOn"]} <= references, f"{each} refers to nothing"
    assert any(part["type"] == "container" for part in bom["components"]), "the SBOM has no base of the image"


def release(run):
    image, charts = "ghcr.io/tollgate-rs/tollgate", "ghcr.io/tollgate-rs/charts"
    made = run.job("release.yaml", "version", {})
    expect(made, {"steps.version.outputs.version": VERSION}, "the version")
    expect(run.run([".github/scripts/version.sh", "v9.9.9"]).returncode, 1, "a tag of another version")
    context = {"github.token": "token", "needs.version.outputs.version": VERSION}
    targets = {"amd64": "x86_64-unknown-linux-gnu", "arm64": "aarch64-unknown-linux-gnu"}
    for arch, target in targets.items():
        run.job("release.yaml", "image", {**context, "matrix.arch": arch, "matrix.target": target})
        calls = run.calls("docker", "helm", "cosign")
        logins = [call for call in calls if "login" in call]
        expect([call[0] for call in logins], ["docker", "helm", "cosign"], "logins")
        assert not any("token" in call for call in calls), "the token is an argument"
        built = next(call for call in calls if call[1:3] == ["buildx", "build"])
        for word in ["--provenance", f"linux/{arch}", "deploy/docker/Dockerfile",
                     f"type=image,name={image},push-by-digest=true,name-canonical=true,push=true"]:
            assert word in built, f"no {word} in {built}"
        out = run.root / "out"
        name = f"tollgate-{VERSION}-linux-{arch}"
        with tarfile.open(out / f"{name}.tar.gz") as archive:
            members = archive.getmembers()
            paths = {each.name for each in members}
            program = archive.extractfile(f"{name}/tollgate").read()
        assert {f"{name}/{each}" for each in ["tollgate", "LICENSE", "README.md", "CHANGELOG.md", "default/basic.yaml"]} <= paths
        expect({(each.uid, each.gid, each.mtime) for each in members}, {(0, 0, members[0].mtime)}, "owners and times")
        sbom = json.loads((out / f"{name}.cdx.json").read_text(encoding="utf-8"))
        listed = [part["hashes"][0]["content"] for part in sbom["components"] if part["type"] == "file"]
        expect(listed, [hashlib.sha256(program).hexdigest()], "the program in the SBOM")
        expect(sbom["metadata"]["component"]["hashes"][0]["content"], DIGEST[arch].removeprefix("sha256:"), "the image")
        if arch == "amd64":
            checked_sbom(run, sbom, target)
    expect(sorted(each.name for each in (run.root / "out").iterdir()), sorted(
        ["digests", *(f"tollgate-{VERSION}-linux-{arch}.{end}" for arch in targets for end in ["tar.gz", "cdx.json"]),
         *(f"tollgate_{VERSION}_{arch}.deb" for arch in targets)]), "files")

    made = run.job("release.yaml", "publish", context)
    expect(made, {"steps.image.outputs.digest": DIGEST["image"], "steps.chart.outputs.digest": DIGEST["chart"]}, "digests")
    calls = run.calls()
    created = next(call for call in calls if call[1:4] == ["buildx", "imagetools", "create"])
    minor = VERSION.rsplit(".", 1)[0]
    expect(created[4:], ["--tag", f"{image}:{VERSION}", "--tag", f"{image}:{minor}",
                         f"{image}@{DIGEST['amd64']}", f"{image}@{DIGEST['arm64']}"], "the tags")
    signed = [call[1:] for call in calls if call[0] == "cosign" and call[1] != "login"]
    expect([call[0] for call in signed], ["sign", "attest", "attest", "sign", "sign-blob"], "signatures")
    expect([signed[0][-1], signed[3][-1]], [f"{image}@{DIGEST['image']}", f"{charts}/tollgate@{DIGEST['chart']}"], "what is signed")
    expect([call[-1] for call in signed[1:3]], [f"{image}@{DIGEST[arch]}" for arch in targets], "images with an SBOM")
    out = run.root / "out"
    sums = dict(reversed(line.split("  ")) for line in (out / "SHA256SUMS").read_text(encoding="utf-8").splitlines())
    expect(sums, {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in out.iterdir()
                  if not each.name.startswith("SHA256SUMS")}, "checksums")
    assert f"tollgate-{VERSION}.tgz" in sums, "no chart"
    chart = run.run([str(ROOT / "target/helm/helm"), "show", "values", f"out/tollgate-{VERSION}.tgz"]).stdout
    values = yaml.safe_load(chart)["image"]
    expect((values["repository"], values["digest"]), (image, DIGEST["image"]), "the image of the chart")
    published = next(call for call in calls if call[0] == "gh")
    expect(published[1:4], ["release", "create", f"v{VERSION}"], "the release")
    expect({pathlib.Path(each).name for each in published if each.startswith("out/")}, {each.name for each in out.iterdir()},
           "the published files")
    notes = run.run([".github/scripts/notes.sh", VERSION]).stdout
    assert "### Added" in notes and "## [" not in notes, "notes are not the section of the version"
    expect(run.run([".github/scripts/notes.sh", "9.9.9"]).returncode, 1, "a version without notes")


REPORT = """| workload | service CPU | of F | target | Redis CPU | target | per second |
|---|---|---|---|---|---|---|
| bare tonic, 1 key | {floor} µs | 1.00 | – | – | – | 1 |
| memory, 1 key | {memory} µs | 1.02 | ≤ 1.2 F | – | – | 1 |
| Redis strict, 1 key | {redis} µs | 1.20 | ≤ 1.4 F | {server} µs | ≤ 0.8 µs | 1 |
"""


def benchmarks(run):
    before = {"floor": 2, "memory": 4, "redis": 6, "server": 2}
    cases = [
        # A slower machine alone is no regression, and neither is the spread of runs.
        (before, {"floor": 4, "memory": 8.6, "redis": 12, "server": 4}, []),
        (before, {"floor": 2, "memory": 4.6, "redis": 6, "server": 3}, [
            "| memory, 1 key | **4.00 → 4.60 µs (1.15)** | – |",
            "| Redis strict, 1 key | 6.00 → 6.00 µs (1.00) | **2.00 → 3.00 µs (1.50)** |",
        ]),
    ]
    compare = run.root / "benches/compare.sh"
    for base, head, expected in cases:
        for name, figures in [("base", base), ("head", head)]:
            (run.root / f"{name}.txt").write_text(REPORT.format(**figures), encoding="utf-8")
        compare.write_text('#!/bin/sh\n[ -n "$ECHO" ] && cat "$(basename "$TOLLGATE" | cut -d- -f2).txt"\n', encoding="utf-8")
        commit = run.run(["git", "rev-parse", "HEAD"]).stdout.strip()
        context = {"github.event.pull_request.base.sha": commit, "github.sha": commit, "github.event.number": "17"}
        shutil.rmtree(run.root / "out", ignore_errors=True)
        # The runner's package manager is not run.
        workflow = run.root / ".github/workflows/benchmarks.yaml"
        workflow.write_text(workflow.read_text(encoding="utf-8").replace("sudo apt-get", "true apt-get"), encoding="utf-8")
        run.job("benchmarks.yaml", "measure", context)
        comment = (run.root / "out/comment.md").read_text(encoding="utf-8")
        for line in expected:
            assert line in comment, f"{base} and {head}: {comment}"
        expect(bool(comment), bool(expected), f"a comment for {base} and {head}")
        run.calls()
        run.job("benchmarks-comment.yaml", "comment", {"github.token": "token"})
        commented = run.calls("gh")
        expect([call[1:4] for call in commented], [["pr", "comment", "17"]] if expected else [], "comments")
    # The number comes from a job that ran the code of a pull request.
    (run.root / "out/number").write_text("17 --repo other/one\n", encoding="utf-8")
    expect(run.run([".github/scripts/comment.sh", "out"]).returncode, 1, "a number with further words")


def fuzz(run):
    workflow = run.root / ".github/workflows/fuzz.yaml"
    workflow.write_text(workflow.read_text(encoding="utf-8").replace("rustup toolchain", "true"), encoding="utf-8")
    run.job("fuzz.yaml", "fuzz", {"github.run_id": "1"})
    targets = sorted(path.stem for path in (ROOT / "fuzz/fuzz_targets").glob("*.rs"))
    calls = [call for call in run.calls("cargo") if "run" in call]
    expect([call[4] for call in calls], targets, "the targets")
    assert all("-max_total_time=1200" in call for call in calls)
    # One that fails does not keep the others from being run.
    failed = run.run([".github/scripts/fuzz.sh", "1"], FAILS=targets[0])
    expect((failed.returncode, len([call for call in run.calls("cargo") if "run" in call])), (1, len(targets)), "after a failure")


def audit(run):
    run.job("audit.yaml", "advisories", {})
    calls = run.calls("cargo")
    expect([call[1] for call in calls], ["deny", "deny"], "checks")
    assert any("fuzz/Cargo.toml" in call for call in calls), calls


def main():
    problems = []
    with tempfile.TemporaryDirectory() as directory:
        try:
            {"release": release, "benchmarks": benchmarks, "fuzz": fuzz, "audit": audit}[sys.argv[1]](Run(pathlib.Path(directory)))
        except (AssertionError, KeyError, OSError, StopIteration) as problem:
            problems.append(f"{type(problem).__name__}: {problem}")
    json.dump(problems, sys.stdout)


main()
