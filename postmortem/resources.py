"""Find `patterns/` and `reports/`: the packaged copy in a wheel, else the checkout's folders."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """Return the folder `name` ("patterns", "reports").
    An editable install has no packaged copy, a wheel has no checkout."""
    packaged = PACKAGE / "_data" / name
    return packaged if packaged.is_dir() else PACKAGE.parent / name
