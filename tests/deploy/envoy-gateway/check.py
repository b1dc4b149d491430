#!/usr/bin/env python3
"""Holds a file of deploy/envoy-gateway, on standard input, to its schema beside this script, and writes it as JSON.

usage: check.py NAME_OF_THE_FILE
"""

import json
import pathlib
import sys

import jsonschema
import yaml

schemas = yaml.safe_load((pathlib.Path(__file__).parent / "schema.yaml").read_text(encoding="utf-8"))
document = yaml.safe_load(sys.stdin)
schema = {"definitions": schemas["definitions"], **schemas[sys.argv[1]]}
jsonschema.Draft7Validator.check_schema(schema)
problems = [f"{error.json_path}: {error.message}" for error in jsonschema.Draft7Validator(schema).iter_errors(document)]
print(*problems, sep="\n", end="", file=sys.stderr)
json.dump(document, sys.stdout)
sys.exit(1 if problems else 0)
