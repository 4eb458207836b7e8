"""The page's templates, compiled once: jinja2 takes 60 ms, a small incident half a second in all.

Like Python's own `.pyc`, what is kept is code, and counts only as `kept` says: of this user, and undamaged.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket, BytecodeCache

from postmortem.system import cache as kept


class Compiled(BytecodeCache):
    """Where jinja2 looks before it compiles a template. It checks version and source itself (`Bucket`)."""

    def load_bytecode(self, bucket: Bucket) -> None:
        if body := kept.fetch(_path(bucket)):
            bucket.load_bytecode(io.BytesIO(body))

    def dump_bytecode(self, bucket: Bucket) -> None:
        body = io.BytesIO()
        bucket.write_bytecode(body)
        kept.store(_path(bucket), body.getvalue())


def _path(bucket: Bucket) -> Path:
    """The options of the environment that compiled it are part of `report/html.py`."""
    content = hashlib.sha256(f"{jinja2.__version__} {bucket.key} {bucket.checksum}".encode())
    return kept.named("template", content, "report/html.py")
