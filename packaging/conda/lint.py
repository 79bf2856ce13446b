#!/usr/bin/env python3
"""usage: lint.py

Renders meta.yaml as conda-build would, parses it, and compares its version with ckpt.h.
What conda-build itself would say of packages and channels is not checked.
"""
import pathlib
import re
import sys

import jinja2
import yaml

here = pathlib.Path(__file__).resolve().parent
text = re.sub(r"\s+# \[.*\]$", "", (here / "meta.yaml").read_text(), flags=re.M)
values = {
    "compiler": lambda language: language + "-compiler",
    "stdlib": lambda language: language + "-stdlib",
    "pin_subpackage": lambda name, **pins: name,
}
recipe = yaml.safe_load(jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(text).render(values))
missing = {"package", "source", "build", "requirements", "test", "about"} - set(recipe)
header = (here / "../../libckpt/include/ckpt.h").read_text()
version = re.search(r'CKPT_VERSION_STRING "(.*)"', header).group(1)
if missing:
    sys.exit(f"meta.yaml has no {', '.join(sorted(missing))}")
if recipe["package"]["version"] != version:
    sys.exit(f"meta.yaml: version {recipe['package']['version']}, ckpt.h: {version}")
print(f"meta.yaml: {recipe['package']['name']} {version}")
