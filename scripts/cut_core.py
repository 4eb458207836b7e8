"""Cut a core file to what the analysis reads of it, for samples: a core of 250 MB becomes one of 100 KB.

    python scripts/cut_core.py core.17538 small.core

Kept: the headers, the notes, and the part of the stack that has the environment, in which every string that is no
variable of `system.core_files.ENVIRONMENT` is overwritten. All other segments are there with no bytes, as the kernel
writes those that it does not dump. The new headers state the new size, so that the file does not count as cut.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

from postmortem.system.core_files import ENVIRONMENT


def cut(core: bytes) -> bytes:
    """Return the small core."""
    table, count = struct.unpack_from("<Q", core, 32)[0], struct.unpack_from("<H", core, 56)[0]
    rows = [list(row) for row in struct.iter_unpack("<IIQQQQQQ", core[table : table + 56 * count])]
    notes = next(row for row in rows if row[0] == 4)
    data = core[notes[2] : notes[2] + notes[5]]
    execfn = _execfn(data)
    at = 64 + 56 * count
    out = b""
    for row in rows:
        _, _, offset, address, _, size, _, _ = row
        if row[0] == 4:
            piece = data
        elif address < execfn < address + size:
            piece = _strings(core[offset : offset + execfn - address]) + core[offset + execfn - address :][:64]
        else:
            piece = b""
        row[2], row[5] = at + len(out), len(piece)
        out += piece
    head = core[:32] + struct.pack("<Q", 64) + core[40:64]
    return head + b"".join(struct.pack("<IIQQQQQQ", *row) for row in rows) + out


def _execfn(notes: bytes) -> int:
    at = 0
    while True:
        names, size, kind = struct.unpack_from("<III", notes, at)
        start = at + 12 + (names + 3 & ~3)
        if kind == 6:
            pairs = dict(struct.iter_unpack("<QQ", notes[start : start + size // 16 * 16]))
            return int(pairs[31])
        at = start + (size + 3 & ~3)


def _strings(stack: bytes) -> bytes:
    """The stack with the known variables, at their places."""
    kept = bytearray(len(stack))
    end = len(stack.removesuffix(b"\0"))
    for text in reversed(stack[:end].split(b"\0")):
        start = end - len(text)
        name, found, _ = text.partition(b"=")
        if not found:
            break
        kept[start:end] = text if ENVIRONMENT.fullmatch(name) else b"_=" + b"x" * (len(text) - 2)
        end = start - 1
    return bytes(kept)


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(cut(Path(sys.argv[1]).read_bytes()))
