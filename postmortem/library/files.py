"""The pattern files of a folder, which is hostile input where users pass their own, and the parsed library on disk.

    found(Path("patterns"))  ->  (Path("patterns/cuda/cuda-out-of-memory.yaml"), b"id: cuda-out-of-..."), ...

Links may lead around inside of the folder, as Kubernetes mounts them, and not out of it: an error message
quotes lines of the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from postmortem.errors import PatternError
from postmortem.model import Action, Example, Explains, Pattern, ReadsAs, Variant
from postmortem.system import cache

MAX_FILE = 1 << 20
CAUSES = "causes"  # the folder of usual causes of a symptom, which are no patterns (postmortem/causes/rows.py)
MOST_FILES = 5000  # files of a folder
SETTLED = 2.0  # seconds: a file that was changed within the clock's tick may change again and look the same
HINT = "a folder of patterns has files `NAME.yaml` of at most 1 MiB; see patterns/README.md"


def found(root: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield each pattern file under a folder with its content, in the order of names. Raise PatternError."""
    inside = root.resolve()
    paths = sorted(path for path in root.rglob("*.yaml") if path.parent.name != CAUSES)
    if not paths and any(root.iterdir()):
        raise PatternError(f"{root}: no pattern file in this folder", HINT)
    for number, path in enumerate(paths):
        if number == MOST_FILES:
            raise PatternError(f"{root}: more than {MOST_FILES:,} pattern files", HINT)
        try:
            target = path.resolve(strict=True)
            if not target.is_relative_to(inside):
                raise _wrong(path, "a link out of its folder, which is not followed")
            yield path, _content(path, target)
        except (OSError, RuntimeError) as error:  # a circle of links is a RuntimeError
            raise _wrong(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None


def stamp(root: Path) -> str | None:
    """Return a hash of the files' names, sizes, inodes and times of change. None where that is not enough to
    detect a change: with links, and where a file may change again within the same tick of the clock."""
    seen, newest = hashlib.sha256(os.fsencode(root.absolute())), 0
    folders = [os.fspath(root)]
    try:
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in sorted(entries, key=lambda e: e.name):
                    if entry.is_symlink():
                        return None
                    if entry.is_dir():
                        folders.append(entry.path)
                    elif entry.name.endswith(".yaml"):
                        i = entry.stat()
                        newest = max(newest, i.st_ctime_ns, i.st_mtime_ns)
                        identity = f"{entry.path}\0{i.st_size}\0{i.st_ino}\0{i.st_mtime_ns}\0{i.st_ctime_ns}\0"
                        seen.update(os.fsencode(identity))
    except OSError:
        return None
    return seen.hexdigest() if newest / 1e9 < time.time() - SETTLED else None


def _content(path: Path, target: Path) -> bytes:
    descriptor = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise _wrong(path, "no regular file")
        data = file.read(MAX_FILE + 1) if info.st_size <= MAX_FILE else b""
    if info.st_size > MAX_FILE or len(data) > MAX_FILE:
        raise _wrong(path, "larger than 1 MiB")
    return data


def _wrong(path: Path, reason: str) -> PatternError:
    return PatternError(f"{path}:1: {reason}", HINT)


# ── YAML, each file once: seven hundred of them take half of a first start ──────────────────────────────────

_MAY_REFER = re.compile(rb"(?m)(?:^|[\s\[{,:-])[&*]|\A(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff)")  # UTF-16 is YAML too


def refers(data: bytes) -> bool:
    """Return whether a file has an anchor or an alias, which may expand to gigabytes. Raise YAMLError."""
    import yaml

    found = yaml.scan(data, Loader=_loader()) if _MAY_REFER.search(data) else ()
    return any(isinstance(token, yaml.AliasToken | yaml.AnchorToken) for token in found)


def composed(data: bytes) -> tuple[Any, dict[str, int]]:
    """Return the one document of a file, and the line of each of its keys. Raise YAMLError, ValueError."""
    loader = _loader()(data)
    try:
        node = loader.get_single_node()
        document = None if node is None else loader.construct_document(node)
        pairs = node.value if isinstance(document, dict) else ()
        return document, {key.value: key.start_mark.line + 1 for key, _ in pairs}
    finally:
        loader.dispose()


def _loader() -> Any:
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


# ── the parsed library on disk ──────────────────────────────────────────────────────────────────────────────
# Parsing 700 YAML files takes half a second, reading their patterns as JSON 30 ms. To read and hash the bytes of the
# files takes 80 ms, and longer on a network file system: so the signpost, named by the metadata of the folders
# (`stamp`), contains the name of the file with their patterns.

_MADE_BY = ("library/files.py", "library/read.py", "model/__init__.py")


def place(content: hashlib._Hash) -> Path:
    """Return the file for pattern files of this hash, read by this version of the program."""
    return cache.named("patterns", content, *_MADE_BY)


def fetch(path: Path) -> dict[str, Pattern] | None:
    rows = cache.fetch_rows(path)
    try:
        return None if rows is None else {row["id"]: _pattern(row) for row in rows}
    except (LookupError, TypeError):
        return None


def store(path: Path, patterns: Mapping[str, Pattern]) -> None:
    """Store the patterns for the next start."""
    rows = list(patterns.values())
    cache.store(path, json.dumps(rows, separators=(",", ":"), default=_row).encode())


def signpost(stamps: Iterable[str | None]) -> Path | None:
    """Return the signpost to the patterns of folders with these stamps; None where one of them has no stamp."""
    content = hashlib.sha256()
    for stamp in stamps:
        if stamp is None:
            return None
        content.update(stamp.encode())
    return cache.named("stamps", content, *_MADE_BY)


def follow(post: Path) -> tuple[dict[str, Pattern], str] | None:
    """Return the patterns and the library's digest that `post` leads to."""
    match cache.fetch_rows(post):
        case [str(name), str(digest)]:
            patterns = fetch(cache.folder() / Path(name).name)
            return None if patterns is None else (patterns, digest)
    return None


def point(post: Path, path: Path, digest: str) -> None:
    """Let `post` lead the next start to the patterns in `path`."""
    cache.store_rows(post, [path.name, digest])


def _row(one: object) -> dict[str, object]:
    """Return a pattern, or a part of one, for JSON; a tenth of the time of `dataclasses.asdict`."""
    return {name: getattr(one, name) for name in one.__slots__}  # type: ignore[attr-defined]


def _pattern(row: dict[str, Any]) -> Pattern:
    row["variants"] = tuple(Variant(**v) for v in row["variants"])
    row["explains"] = tuple(Explains(**e) for e in row["explains"])
    row["reads_as"] = ReadsAs(**row["reads_as"]) if row["reads_as"] else None
    row["actions"] = tuple(Action(**a) for a in row["actions"])
    for name in ("matches", "no_matches"):
        row[name] = tuple(Example(**e) for e in row[name])
    for name in ("sources", "references", "tells", "survived_by", "cause_if", "bears_out"):
        row[name] = tuple(row[name])
    return Pattern(**row)
