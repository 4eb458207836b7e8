"""Paths -> containers: every regular file once, in the order of its label, and a row for each file left out.

    ["./logs"] -> Container(logs/node-a/rank0.log, "node-a/rank0.log", 5120, "plain"), ...

A link is never followed: inside the given folder its target is found by its own name, outside it is not meant.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from postmortem.errors import PathMissing
from postmortem.input.container import Container, form_of
from postmortem.input.names import PASSED_BY, PASSED_BY_REASON, WRITTEN, printable
from postmortem.input.open import open_regular
from postmortem.input.remote import find, is_remote
from postmortem.input.sniff import IN_PARTS, magic
from postmortem.model import Skip
from postmortem.model.vocabulary import WRITTEN_REASON

NOTES = re.compile(r"(?i)(?:^|/)(?!readme|changelog|license|contributing)[^/]*\.(?:md|rst)$")
SPECIAL = {
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}


@dataclass(frozen=True, slots=True)
class Collection:
    """Files to read, and files left out with the reason, each in the order of its label."""

    containers: tuple[Container, ...]
    skipped: tuple[Skip, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    """A name in a folder. `reason` is why it will not be opened."""

    path: str
    label: str
    reason: str = ""
    lost: bool = False  # it should have been read


def collect(paths: Sequence[str]) -> Collection:
    """Find the files under files, folders, globs and addresses. Raise PathMissing for a path that does not exist."""
    roots = _roots([path for path in paths if not is_remote(path)])
    found: dict[str, _Found] = {}
    for root, prefix in zip(roots, _prefixes(roots), strict=True):
        for item in _walk(root, prefix, inside=roots):
            found.setdefault(item.path, item)  # roots may overlap
    notes = set(found) if all(NOTES.search(item.label) for item in found.values()) else set()  # a pasted issue alone
    rows: list[Container | Skip] = []
    passed_by: list[_Found] = []
    seen: dict[tuple[int, int], str] = {}
    for item in _unique_labels(sorted(found.values(), key=lambda item: (item.label, item.path))):
        if item.reason == PASSED_BY_REASON:
            passed_by.append(item)
            continue
        row = Skip(item.label, 0, item.reason, not item.lost) if item.reason else _open(item, seen)
        rows.append(_log_by_name(row, meant=item.path in roots or item.path in notes))
    for url in (path for path in paths if is_remote(path)):
        for there in find(url, "" if len(paths) == 1 else url.rstrip("/").rpartition("/")[2]):
            rows.append(_log_by_name(there, meant=isinstance(there, Container) and there.url == url))
    rows += [Skip(item.label, _size(item, seen), item.reason, meant=True) for item in passed_by]
    skipped = sorted((row for row in rows if isinstance(row, Skip)), key=lambda row: row.path)
    return Collection(tuple(row for row in rows if isinstance(row, Container)), tuple(skipped))


def _roots(paths: Sequence[str]) -> list[str]:
    """Resolve the user's paths; a link among them is meant."""
    roots: list[str] = []
    for given in paths:
        path = str(Path(given).expanduser())
        matches = [path] if os.path.lexists(path) else []
        if not matches and glob.has_magic(path):
            matches = sorted(glob.glob(path, recursive=True))  # noqa: PTH207 - Path.glob takes no absolute patterns
        if not matches:
            reason = "nothing matches" if glob.has_magic(path) else "no such file or folder:"
            hint = "name the folder with the job's logs, for example ./logs"
            raise PathMissing(f"{reason} {printable(os.fsencode(path))}", hint)
        roots.extend(os.path.realpath(match) for match in matches)
    return list(dict.fromkeys(roots))


def _prefixes(roots: list[str]) -> list[str]:
    """Return the prefix of the labels of each root: none for one, else as much of its path as makes it unique."""
    if len(roots) == 1:
        return ["" if Path(roots[0]).is_dir() else Path(roots[0]).name]
    parts = [root.strip("/").split("/") for root in roots]
    length = [1] * len(roots)
    while True:
        names = ["/".join(p[-n:]) for p, n in zip(parts, length, strict=True)]
        counts = Counter(names)
        longer = [n + (counts[name] > 1 and n < len(p)) for name, p, n in zip(names, parts, length, strict=True)]
        if longer == length:
            return names
        length = longer


def _walk(root: str, prefix: str, inside: list[str]) -> Iterator[_Found]:
    """Go through a folder without recursion: a tree may be deeper than Python's stack."""
    if not Path(root).is_dir():
        yield _Found(root, prefix)
        return
    folders = [(root, f"{prefix}/" if prefix else "")]
    while folders:
        folder, before = folders.pop()
        try:
            with os.scandir(folder) as entries:
                names = list(entries)
        except OSError as error:
            why = f"folder cannot be read: {os.strerror(error.errno or 0)}"
            yield _Found(folder, before or "./", why, lost=True)
            continue
        for entry in names:
            label = before + entry.name
            if entry.is_symlink():
                yield _Found(entry.path, label, _link(entry.path, inside))
            elif not _is_folder(entry):
                yield _Found(entry.path, label)
            elif entry.name in PASSED_BY:
                yield _Found(entry.path, f"{label}/", PASSED_BY_REASON)
            else:
                folders.append((entry.path, f"{label}/"))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:  # reported where the file is opened
        return False


def _link(path: str, inside: list[str]) -> str:
    """Return why a link is not followed."""
    target = os.path.realpath(path)
    if not os.path.lexists(target) or Path(target).is_symlink():
        return "dangling link"
    if any(target == root or target.startswith(root.rstrip("/") + "/") for root in inside):
        return "link inside the given folder: its target is read under its own name"
    return "link out of the given folder: not followed; name its target on the command line to read it"


def _size(found: _Found, seen: dict[tuple[int, int], str]) -> int:
    """Return the bytes of the regular files in a skipped folder, except those that were read by another name."""
    total, folders = 0, [found.path]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        info = entry.stat(follow_symlinks=False)
                        if seen.setdefault((info.st_dev, info.st_ino), entry.path) == entry.path:
                            total += info.st_size
        except OSError:
            continue  # counted as empty
    return total


def _unique_labels(items: list[_Found]) -> Iterator[_Found]:
    """Make labels printable and unique: two odd names may look alike."""
    used: set[str] = set()
    for item in items:
        label = base = (
            item.label if item.label.isascii() and item.label.isprintable() else printable(os.fsencode(item.label))
        )
        copy = 1
        while label in used:
            copy += 1
            label = f"{base}~{copy}"
        used.add(label)
        yield item if label == item.label else replace(item, label=label)


def _log_by_name(row: Container | Skip, *, meant: bool) -> Container | Skip:
    """Leave out a file with the name of a program or notes, unless the user named it."""
    if isinstance(row, Container) and not meant and WRITTEN.search(row.label):
        return Skip(row.label, row.size, WRITTEN_REASON, meant=True)
    return row


def _open(item: _Found, seen: dict[tuple[int, int], str]) -> Container | Skip:
    """Return one file as a container, or why it is none: not regular, seen before, binary by its first bytes."""
    size = 0
    try:
        before = os.lstat(item.path)
        if not stat.S_ISREG(before.st_mode):  # not opened at all: opening a device may do something
            special = SPECIAL.get(stat.S_IFMT(before.st_mode), "not a regular file")
            return Skip(item.label, 0, f"{special}: not read", meant=True)
        size = before.st_size
        fd = open_regular(item.path)
        try:
            info = os.fstat(fd)
            head = os.pread(fd, 512, 0) if stat.S_ISREG(info.st_mode) else b""
        finally:
            os.close(fd)
    except OSError as error:
        return Skip(item.label, size, f"cannot be read: {os.strerror(error.errno or 0)}")
    if not stat.S_ISREG(info.st_mode):
        return Skip(item.label, 0, "not a regular file: not read", meant=True)
    first = seen.setdefault((info.st_dev, info.st_ino), item.label)
    if first != item.label:
        return Skip(item.label, 0, f"the same file as {first}", meant=True)
    if (kind := magic(head)) and kind not in IN_PARTS:
        return Skip(item.label, info.st_size, f"binary ({kind})", meant=True)
    return Container(Path(item.path), item.label, info.st_size, form_of(item.label, head))
