"""Archives that tests make in memory."""

from __future__ import annotations

import io
import tarfile


def tar_of(files: dict[str, bytes], **options: object) -> bytes:
    """A tar of members by name; `options` are those of `tarfile.open`."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", **options) as tar:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()
