"""Archives and compressed files that tests make in memory."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial

import zstandard

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": partial(gzip.compress, mtime=0),
    "xz": partial(lzma.compress, preset=0),
    "bz2": bz2.compress,
    "zst": zstandard.compress,
}


def tar_of(files: dict[str, bytes], **options: object) -> bytes:
    """A tar of members by name; `options` are those of `tarfile.open`."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", **options) as tar:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zip_of(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip of members by name, without today's date: a strategy must not depend on it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        for name, data in files.items():
            z.writestr(zipfile.ZipInfo(name), data, method)
    return out.getvalue()
