"""Logs in object stores and behind web servers: read by ranges through fsspec, never copied to disk.

    "s3://bucket/run-7/"  ->  Container(url="s3://bucket/run-7/node-a/rank0.log", size=5120, "plain"), ...

Only addresses on the command line are fetched, never one from a log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from postmortem.errors import PathMissing, UsageError
from postmortem.input.container import Container, form_of
from postmortem.input.sniff import IN_PARTS, magic
from postmortem.input.streams import Bytes, Incomplete
from postmortem.model import Skip

AHEAD = 4 << 20  # bytes asked for at once: a request takes as long as a megabyte
MOST_OBJECTS = 100_000  # objects under one address
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


def is_remote(path: str) -> bool:
    return bool(_SCHEME.match(path)) and not path.lower().startswith("file:")


@lru_cache(maxsize=64)
def _system(url: str) -> tuple[Any, str]:
    """Return the file system of an address, with credentials from the environment, and the path in it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise UsageError(
            f"{url}: addresses need fsspec",
            "pip install 'torch-postmortem[remote]', and s3fs for s3:// or gcsfs for gs://",
        ) from None
    try:
        system, path = url_to_fs(url)
    except ImportError as error:
        hint = "install it beside postmortem; its credentials come from the environment"
        raise UsageError(f"{url}: {str(error)[:200]}", hint) from None
    except Exception as error:  # of each library; some connect here
        hint = "supported are s3://, gs://, hdfs://, https:// and the other addresses of fsspec"
        raise UsageError(f"{url}: {str(error)[:200]}", hint) from None
    return system, str(path)


def find(url: str, prefix: str = "") -> Iterator[Container | Skip]:
    """Yield every object under an address, in the order of names. Raise PathMissing where there is none."""
    system, path = _system(url)
    try:
        rows = system.glob(path, detail=True) if "*" in path else system.find(path, detail=True)
        if not rows and system.isfile(path):
            rows = {path: system.info(path)}
    except Exception as error:  # each library has errors of its own
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        raise PathMissing(f"{url}: {reason}", "check the address and the credentials") from None
    rows = {name: row for name, row in rows.items() if row.get("type", "file") == "file"}
    if not rows:
        raise PathMissing(f"{url}: no such object or folder", "list it with the store's own tool")
    base = path.split("*")[0].rpartition("/")[0] if "*" in path else path.rstrip("/")
    for number, name in enumerate(sorted(rows)):
        inside = name.removeprefix(base).strip("/") or name.rstrip("/").rpartition("/")[2] or "object"
        label = f"{prefix}/{inside}" if prefix else inside
        yield (
            _container(system, name, label, rows[name].get("size"))
            if number < MOST_OBJECTS
            else Skip(label, 0, f"more than {MOST_OBJECTS} objects")
        )


def _container(system: Any, name: str, label: str, size: int | None) -> Container | Skip:
    url = str(system.unstrip_protocol(name))
    try:
        if size is None:
            size = system.info(name).get("size")
        if size is None:
            return Skip(label, 0, "the server does not give its size")
        head = system.cat_file(name, start=0, end=min(512, size)) if size else b""
    except Exception as error:  # each library has errors of its own
        return Skip(label, size or 0, f"cannot be read: {type(error).__name__}: {str(error)[:200]}")
    if (binary := magic(head)) and binary not in IN_PARTS:
        return Skip(label, size, f"binary ({binary})", meant=True)
    return Container(Path(label), label, size, form_of(label, head), url)


class Remote(Bytes):
    """An object read by ranges."""

    def __init__(self, url: str, size: int, at: int = 0) -> None:
        super().__init__()
        self.system, self.name = _system(url)
        self.size, self.at = size, at

    def left(self) -> int:
        return self.size - self.at

    def _pull(self, n: int) -> bytes:
        if self.at >= self.size:
            return b""
        want = min(max(n, AHEAD), self.size - self.at)
        piece = self._ranged(want)
        if len(piece) > want:
            raise Incomplete("the server does not serve ranges of it", self.left())
        if not piece:
            raise Incomplete(f"shrank while it was read: ends at {self.at} of {self.size} bytes", self.left())
        self.at += len(piece)
        return piece

    def _ranged(self, want: int) -> bytes:
        for again in (True, False):
            try:
                return bytes(self.system.cat_file(self.name, start=self.at, end=self.at + want))
            except Exception as error:  # each library has errors of its own; one lost connection is normal
                if not again:
                    reason = f"{type(error).__name__}: {str(error)[:200]}"
                    raise Incomplete(f"read error at offset {self.at}: {reason}", self.left()) from None
        raise AssertionError
