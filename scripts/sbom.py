"""Write the bill of materials of a release: what the wheel needs at run time, as CycloneDX 1.6 in JSON.

    python scripts/sbom.py [--wheel dist/torch_postmortem-0.1.0-py3-none-any.whl] [--output FILE]

Versions and hashes are those of requirements-dev.lock: with them the release was tested, on Linux. Users may
have others within the bounds of pyproject.toml, which stand beside them. The wheel itself holds nothing of
others: the report's script has no dependencies. The same lock and wheel give the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from packaging.utils import canonicalize_name

from scripts.lock import DEV, PYTHONS, ROOT, Pin, asked, pins, project

SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"
# What each declares, as an SPDX expression. Some metadata say no more than `BSD` or `LGPL`: there the licence
# was read. tests/test_supply_chain.py compares with the metadata. A new one has no entry: read it first.
LICENCES = {
    "annotated-doc": "MIT",
    "google-re2": "BSD-3-Clause",
    "hyperscan": "MIT",
    "isal": "PSF-2.0",
    "jinja2": "BSD-3-Clause",
    "markdown-it-py": "MIT",
    "markupsafe": "BSD-3-Clause",
    "mdurl": "MIT",
    "numpy": "BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0",
    "pandas": "BSD-3-Clause",
    "pebble": "LGPL-3.0-or-later",
    "pygments": "BSD-2-Clause",
    "python-dateutil": "BSD-3-Clause",
    "pyyaml": "MIT",
    "regex": "Apache-2.0 AND CNRI-Python",
    "rich": "MIT",
    "shellingham": "ISC",
    "typer": "MIT",
    "tzdata": "Apache-2.0",
    "zstandard": "BSD-3-Clause",
}
# Needed on Windows only, which a lock does not say where another package of it needs the same one on Linux.
WINDOWS = {"colorama"}


def needed(locked: Iterable[Pin], names: Iterable[str]) -> list[Pin]:
    """These packages and all that they ask for, on Linux."""
    linux = [pin for pin in locked if any(pin.holds(python) for python in PYTHONS)]
    here = [pin for pin in linux if pin.name not in WINDOWS]
    known: set[str] = set()
    fresh: set[str] = {canonicalize_name(name) for name in names}
    while fresh - known:
        known |= fresh
        fresh = {pin.name for pin in here if known.intersection(pin.via)}
    return sorted((pin for pin in here if pin.name in known), key=lambda pin: (pin.name, pin.version))


def purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def licence(expression: str) -> list[dict[str, Any]]:
    form: dict[str, Any] = {"expression": expression} if " " in expression else {"license": {"id": expression}}
    declared = {"acknowledgement": "declared"}  # by its authors; nobody has looked through the files
    return [form | declared if "expression" in form else {"license": form["license"] | declared}]


def component(pin: Pin, bounds: dict[str, str]) -> dict[str, Any]:
    ref = purl(pin.name, pin.version)
    told = {"postmortem:allowed": bounds.get(pin.name, ""), "postmortem:where": pin.marker}
    files = {
        "type": "distribution",
        "url": ref,
        "comment": "The files of this release; which one is installed depends on the machine.",
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in sorted(pin.hashes)],
    }
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": ref,
        "name": pin.name,
        "version": pin.version,
        "scope": "required",
        "licenses": licence(LICENCES[pin.name]),
        "purl": ref,
        "externalReferences": [files],
    }
    properties = [{"name": name, "value": value} for name, value in told.items() if value]
    return found | ({"properties": properties} if properties else {})


def bill(locked: Iterable[Pin], wheel: bytes | None = None) -> dict[str, Any]:
    """Return the document. With the wheel's bytes, it says which wheel it is of."""
    about = project()
    bounds: dict[str, str] = {canonicalize_name(r.name): str(r.specifier) for r in asked(about)}
    inside = needed(locked, bounds)
    refs: dict[str, list[str]] = {}
    for pin in inside:
        refs.setdefault(pin.name, []).append(purl(pin.name, pin.version))
    asks = {
        pin.name: sorted(ref for other in inside if pin.name in other.via for ref in refs[other.name]) for pin in inside
    }
    root = purl(about["name"], about["version"])
    product: dict[str, Any] = {
        "type": "application",
        "bom-ref": root,
        "name": about["name"],
        "version": about["version"],
        "description": about["description"],
        "licenses": licence(about["license"]),
        "purl": root,
    }
    if wheel is not None:
        product["hashes"] = [{"alg": "SHA-256", "content": hashlib.sha256(wheel).hexdigest()}]
    document: dict[str, Any] = {
        "$schema": SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": "",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "tools": {"components": [{"type": "application", "name": "scripts/sbom.py of torch-postmortem"}]},
            "component": product,
        },
        "components": [component(pin, bounds) for pin in inside],
        "dependencies": [
            {"ref": root, "dependsOn": sorted(ref for name in bounds for ref in refs[name])},
            *({"ref": purl(pin.name, pin.version), "dependsOn": [*dict.fromkeys(asks[pin.name])]} for pin in inside),
        ],
    }
    # of the content, not of chance or the clock: who makes it again gets the same
    content = json.dumps(document, sort_keys=True)
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, content).urn
    return document


def text(locked: Iterable[Pin], wheel: bytes | None = None) -> str:
    return json.dumps(bill(locked, wheel), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    about = project()
    name = f"{about['name'].replace('-', '_')}-{about['version']}.cdx.json"
    parser = argparse.ArgumentParser(description="Write the bill of materials of a release (CycloneDX 1.6).")
    parser.add_argument("--wheel", type=Path, help="the wheel that it is of")
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / name)
    args = parser.parse_args()
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(text(pins(DEV.read_text()), args.wheel.read_bytes() if args.wheel else None))
    print(args.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
