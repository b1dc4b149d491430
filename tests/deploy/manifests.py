#!/usr/bin/env python3
"""Reads what kustomize built from standard input, holds it to Kubernetes' schemas, and writes it as JSON.

Kinds that Kubernetes does not have itself are written without a look. Problems go to standard error, one a line.
"""

import json
import sys

import kubernetes_validate
import yaml

# The oldest that has all that is used, and the newest that the schemas know.
VERSIONS = ["1.31", "1.37"]
# Groups of resources that others define.
OTHERS = ["cert-manager.io", "monitoring.coreos.com"]

documents = list(yaml.safe_load_all(sys.stdin))
problems = []
for document in documents:
    name = f"{document.get('kind')}/{document.get('metadata', {}).get('name')}"
    if document.get("apiVersion", "").split("/")[0] in OTHERS:
        continue
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            problems.append(f"{name} as of {version}: {error.message}")
        except kubernetes_validate.SchemaNotFoundError as error:
            problems.append(f"{name} as of {version}: {error.message}")
print(*problems, sep="\n", end="", file=sys.stderr)
json.dump(documents, sys.stdout)
sys.exit(1 if problems else 0)
