"""Content of the roots: folders with logs, archives, and existing reports.

rows(roots, Path("/scratch/jobs"), …)
-> [{"path": "job-17", "kind": "folder", "files": 12, "bytes": 81234, "changed": "2026-11-20T21:14:02Z",
     "reports": [{"path": "job-17/postmortem-report.html", "headline": "Rank 3 …"}]}, …]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from postmortem.errors import PostmortemError, UsageError
from postmortem.fleet.mcp.roots import Roots
from postmortem.privacy import Redactor
from postmortem.replay import documents
from postmortem.report import text, view

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
