"""Whether a head is no text, and what it is then: told by its first bytes, or by its control characters."""

from __future__ import annotations

import re

HOLE = 64  # shorter runs of NULs are numbers in binary data, longer ones are holes in a text

MAGICS: tuple[tuple[bytes, int, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", 0, "image"),
    (b"\xff\xd8\xff", 0, "image"),
    (b"GIF8", 0, "image"),
    (b"PAR1", 0, "parquet"),
    (b"ARROW1", 0, "arrow"),
    (b"\x89HDF\r\n\x1a\n", 0, "HDF5"),
    (b"\x93NUMPY", 0, "numpy array"),
    (b"SQLite format 3\0", 0, "SQLite"),
    (b"LPKSHHRH", 0, "systemd journal: export it with `journalctl --file FILE -o short-iso-precise`"),
    (b"%PDF-", 0, "PDF"),
    (b"!<arch>\n", 0, "library"),
    (b"7z\xbc\xaf\x27\x1c", 0, "7z archive: unpack it first"),
    (b"Rar!\x1a\x07", 0, "rar archive: unpack it first"),
    (b"\x04\x22\x4d\x18", 0, "lz4: unpack it first"),
    (b"\x1f\x9d", 0, "compress (.Z): unpack it first"),
    (b"PERFILE2", 0, "perf data"),
    (b":W&B", 0, "wandb run"),
    (b"\xcf\xfa\xed\xfe", 0, "Mach-O"),
    (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", 0, "PyTorch checkpoint"),
    (b"\r\r\n", 1, "Python bytecode"),
)
ELF_TYPES = {1: "ELF object", 2: "ELF program", 3: "ELF library or program", 4: "ELF core"}
# The first member's name tells what a zip is for; only zips of other things are looked into.
ZIPS = (
    (
        re.compile(rb"(?:^|/)(?:data\.pkl|\.format_version|byteorder|\.data/serialization_id)$"),
        "PyTorch checkpoint",
    ),
    (re.compile(rb"\.npy$"), "numpy arrays"),
    (re.compile(rb"^\[Content_Types\]\.xml$"), "office document"),
)
CONTROLS = bytes(c for c in range(32) if c not in b"\t\n\v\f\r\b\x1b\a") + b"\x7f"
HOLES = re.compile(rb"\0{%d,}" % HOLE)


def magic(head: bytes) -> str | None:
    """Name a binary format by its first bytes, or None."""
    if head[:4] == b"\x7fELF":
        order = "big" if head[5:6] == b"\2" else "little"
        kind = int.from_bytes(head[16:18], "big" if order == "big" else "little")
        return ELF_TYPES.get(kind, "ELF")
    if head[:4] == b"PK\x03\x04":
        name = head[30 : 30 + int.from_bytes(head[26:28], "little")]
        return next((what for pattern, what in ZIPS if pattern.search(name)), None)
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") < 100 << 20:
        return "safetensors"
    return next((what for bytes_, at, what in MAGICS if head.startswith(bytes_, at)), None)


def binary(head: bytes) -> str | None:
    """Say why a head is no text, or None.

    Control characters decide, not NULs alone: a text log may have NULs where the disk lost a page or where
    logrotate truncated a file that its writer did not open for appending. Text in an old encoding has bad
    UTF-8 but no controls.
    """
    if what := magic(head):
        return what
    if head.isascii() and b"\0" not in head:
        return None
    text = HOLES.sub(b"", head)
    if not text:
        return None
    controls = len(text) - len(text.translate(None, CONTROLS))
    if controls > 0.1 * len(text):
        return "no text"
    bad = len(text) - len(text.decode("utf-8", "ignore").encode())
    return "no text" if bad > 0.3 * len(text) and controls > 0.01 * len(text) else None
