"""Paths that an agent may name: files and folders below the given roots.

    Roots(["/scratch/jobs"]).find("job-17/logs")  ->  Path("/scratch/jobs/job-17/logs")
    Roots(["/scratch/jobs"]).find("../secrets")   raises UsageError

No link is followed, and only regular files and folders are opened.

    rows(roots, Path("/scratch/jobs"), …)
    ->  [{"path": "job-17", "kind": "folder", "files": 12, "bytes": 81234, "changed": "…", "reports": [{…}]}, …]
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from postmortem.errors import PathMissing, PostmortemError, UsageError
from postmortem.input.walk import SPECIAL
from postmortem.privacy import Redactor
from postmortem.replay import documents
from postmortem.report import text, view

LIST = "ask `incidents` for a list"
LONGEST = 4096


class Roots:
    """The folders of the command line, resolved once."""

    def __init__(self, given: Sequence[Path]) -> None:
        self.spelled = [Path(os.path.abspath(path)) for path in given]  # noqa: PTH100
        self.folders = [Path(os.path.realpath(path)) for path in given]
        for path, folder in zip(given, self.folders, strict=True):
            if not folder.is_dir():
                raise PathMissing(f"{path} is not a folder", "name an existing folder: --root DIR")

    def find(self, given: str) -> Path:
        """Return the file or folder of this name. Raise UsageError or PathMissing if it may not be read."""
        name = PurePosixPath(given)
        if not given or "\0" in given or len(given) > LONGEST:
            raise UsageError("this is not a path", LIST)
        if ".." in name.parts:
            raise UsageError(f"{given}: `..` is not followed", "name the path from a root on")
        root, inside = self._split(name)
        path = root
        for part in ("", *inside.parts):
            path = path / part if part else root
            _check(path, given, root)
        return path

    def shown(self, path: Path) -> str:
        """Return the name by which `find` finds it: relative to a single root."""
        inside = len(self.folders) == 1 and path.is_relative_to(self.folders[0])
        return str(path.relative_to(self.folders[0])) if inside else str(path)

    def below(self, path: Path) -> Iterator[os.DirEntry[str]]:
        """Yield every regular file in a folder and below it, without following links."""
        folders = [str(path)]
        while folders:
            try:
                with os.scandir(folders.pop()) as entries:
                    found = list(entries)
                for entry in found:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        yield entry
            except OSError:  # the analysis reports it
                continue

    def stamp(self, paths: Sequence[Path]) -> str:
        """Return a digest of names, sizes and times of all files below the paths. Raise UsageError for one that an
        agent may not read."""
        digest = hashlib.sha256()
        for path in paths:
            root = next(root for root in self.folders if path.is_relative_to(root))
            entries = [(str(path), path.lstat())]
            if path.is_dir():
                entries = sorted((e.path, e.stat(follow_symlinks=False)) for e in self.below(path))
            for name, info in entries:
                _check_owner(info, self.shown(Path(name)), root)
                row = (name, info.st_size, info.st_mtime_ns, info.st_ino)
                digest.update(repr(row).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def _split(self, name: PurePosixPath) -> tuple[Path, PurePosixPath]:
        """Return the root of a name, and the rest of the name."""
        if not name.is_absolute():
            there = [root for root in self.folders if os.path.lexists(root / name)]
            return (there or self.folders)[0], name
        for spelled, folder in zip(self.spelled, self.folders, strict=True):
            for root in (spelled, folder):
                if name.is_relative_to(root):
                    return folder, name.relative_to(root)
        raise UsageError(
            f"{name} is not below {', '.join(map(str, self.folders))}",
            f"{LIST}; a person may start the server with one more --root",
        )


def _check(path: Path, given: str, root: Path) -> None:
    """Raise an error if a file or folder may not be read."""
    try:
        info = path.lstat()
    except FileNotFoundError:
        inner = " (a member of an archive is a line's address; name the archive)" if "!/" in given else ""
        raise PathMissing(f"{given}: no such file or folder{inner}", LIST) from None
    except OSError as error:
        raise UsageError(f"{given}: {os.strerror(error.errno or 0)}", LIST) from None
    if stat.S_ISLNK(info.st_mode):
        raise UsageError(f"{given} is or lies behind a link, which is not followed", "name its target")
    if not stat.S_ISREG(info.st_mode) and not stat.S_ISDIR(info.st_mode):
        kind = SPECIAL.get(stat.S_IFMT(info.st_mode), "no regular file")
        raise UsageError(f"{given} is a {kind}: not read", "name a file or a folder")
    if not os.access(path, os.R_OK | (os.X_OK if stat.S_ISDIR(info.st_mode) else 0)):
        raise UsageError(f"{given} may not be read by this user", "a person has to make it readable")
    _check_owner(info, given, root)


def _check_owner(info: os.stat_result, given: str, root: Path) -> None:
    """Raise UsageError for a private file of another user, which the system lets a superuser read, and for a name of
    such a file, which anyone may have made in a folder of theirs."""
    if stat.S_ISREG(info.st_mode) and info.st_nlink > 1 and info.st_uid != root.stat().st_uid:
        raise UsageError(f"{given} is a hard link to a file of another user (uid {info.st_uid})", "name a copy of it")
    if os.geteuid() or info.st_mode & stat.S_IROTH or info.st_uid in (0, root.stat().st_uid):
        return
    raise UsageError(
        f"{given} belongs to another user (uid {info.st_uid}), and is private",
        "a person may start the server as that user, or with a --root of that user's",
    )


# ── the content of the roots ────────────────────────────────────────────────────────────────────────────────

FILES = 50_000  # examined in one answer
REPORTS, READ = 2, 20  # reports named of a folder, and read in one answer
LARGEST = 8 << 20  # bytes of a report that is opened for its headline
NAMED = 32 << 20  # bytes of a report that was named
HEAD = 4096


def rows(roots: Roots, folder: Path | None, stopped: Callable[[], bool]) -> list[dict[str, Any]]:
    """Return the content of a folder, the latest change first; of several roots by default the roots themselves."""
    if folder is None and len(roots.folders) > 1:
        paths = list(roots.folders)
    else:
        with os.scandir(folder or roots.folders[0]) as entries:
            paths = [Path(e.path) for e in entries if not e.is_symlink() and (e.is_dir() or e.is_file())]
    listing = _Listing(roots, stopped)
    found = [row for path in paths if (row := listing.row(path))]
    by_name = sorted(found, key=lambda row: str(row["path"]))
    return sorted(by_name, key=lambda row: str(row["changed"]), reverse=True)


def document(path: Path) -> dict[str, Any]:
    """Return the incident document of a report, whoever wrote it, with secrets masked. Raise PostmortemError if it is
    larger or deeper than any report of ours."""
    if path.stat().st_size > NAMED:
        raise UsageError(f"{path.name} is larger than {NAMED >> 20} MiB", "ask `analyze` about the logs")
    try:
        found: Any = Redactor().document(documents.read(path))
    except RecursionError:
        raise UsageError(f"{path.name} contains no incident document", "ask `analyze` about the logs") from None
    return dict(found)


class _Listing:
    """One answer, and the files and reports that it may still open."""

    def __init__(self, roots: Roots, stopped: Callable[[], bool]) -> None:
        self.roots, self.stopped = roots, stopped
        self.files, self.reports = FILES, READ

    def row(self, path: Path) -> dict[str, Any]:
        """Return the row of a file or folder; empty for a folder without files."""
        count = size = 0
        changed = 0.0
        reports: list[dict[str, str]] = []
        more = {}
        for name, info in self._below(path):
            if self.stopped() or self.files == 0:
                more = {"more_files": True}
                break
            self.files -= 1
            count, size, changed = count + 1, size + info.st_size, max(changed, info.st_mtime)
            if len(reports) < REPORTS and self.reports and name.endswith((".html", ".json")):
                reports += self._report(Path(name)) if info.st_size <= LARGEST else []
        if not count:
            return {}
        return {
            "path": self.roots.shown(path),
            "kind": "folder" if path.is_dir() else "file",
            "files": count,
            "bytes": size,
            "changed": text.utc(changed, "%Y-%m-%dT%H:%M:%SZ"),
            **({"reports": reports} if reports else {}),
            **more,
        }

    def _below(self, path: Path) -> Iterable[tuple[str, os.stat_result]]:
        if not path.is_dir():
            return [(str(path), path.lstat())]
        return ((entry.path, entry.stat(follow_symlinks=False)) for entry in self.roots.below(path))

    def _report(self, path: Path) -> list[dict[str, str]]:
        """Return path and headline of a report of postmortem; nothing for any other file."""
        try:
            with self.roots.find(str(path)).open("rb") as file:
                head = file.read(HEAD)
            if b'"postmortem/incident/1"' not in head and b'content="postmortem"' not in head:
                return []
            self.reports -= 1
            headline = view.headline(document(path))
        except (OSError, PostmortemError):
            return []
        return [{"path": self.roots.shown(path), "headline": text.sentence(headline, 200)}]
