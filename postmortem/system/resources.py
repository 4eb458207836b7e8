"""Find `patterns/`, `reports/` and `schemas/`: the packaged copy in a wheel, else the checkout's folders."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent


def folder(name: str) -> Path:
    """Return the folder `name`. An editable install has no packaged copy, a wheel has no checkout."""
    packaged = PACKAGE / "_data" / name
    return packaged if packaged.is_dir() else PACKAGE.parent / name


def schema(name: str) -> str:
    """Return the JSON Schema of the "incident" document, its "brief" or an "event"."""
    return (folder("schemas") / f"{name}-1.schema.json").read_text(encoding="utf-8")
