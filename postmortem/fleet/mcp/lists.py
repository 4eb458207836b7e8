"""What lies below the roots: folders with logs, archives, and reports that somebody wrote earlier.

rows(roots, Path("/scratch/jobs"), …)
-> [{"path": "job-17", "kind": "folder", "files": 12, "bytes": 81234, "changed": "2026-11-20T21:14:02Z",
     "reports": [{"path": "job-17/postmortem-report.html", "headline": "Rank 3 …"}]}, …]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from postmortem.errors import PostmortemError
from postmortem.fleet.mcp.roots import Roots
from postmortem.privacy import Redactor
from postmortem.replay import documents
from postmortem.report import text, view

COUNTED = 50_000  # files that are looked at, of all folders together
REPORTS, READ = 2, 20  # reports named of a folder, and read of all
LARGEST = 8 << 20  # bytes of a report that is opened for its headline
HEAD = 4096
Stopped = Callable[[], bool]


def rows(roots: Roots, folder: Path | None, stopped: Stopped) -> list[dict[str, Any]]:
    """What stands in a folder, or the roots themselves where there are several; what changed last first."""
    if folder is None and len(roots.folders) > 1:
        paths: Sequence[Path] = roots.folders
    else:
        paths = _inside(folder or roots.folders[0])
    budget = _Budget()
    found = [_row(roots, path, budget, stopped) for path in paths]
    by_name = sorted((row for row in found if row), key=lambda row: str(row["path"]))
    return sorted(by_name, key=lambda row: str(row["changed"]), reverse=True)


def document(path: Path) -> dict[str, Any]:
    """The incident document of a report, without secrets, whoever wrote it."""
    cleaned = Redactor().document(documents.read(path))
    assert isinstance(cleaned, dict)
    return cleaned


class _Budget:
    """What one answer may look at."""

    def __init__(self) -> None:
        self.files, self.reports = COUNTED, READ


def _inside(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return [Path(e.path) for e in entries if not e.is_symlink() and (e.is_dir() or e.is_file())]


def _row(roots: Roots, path: Path, budget: _Budget, stopped: Stopped) -> dict[str, Any]:
    count = size = 0
    changed = 0.0
    reports: list[dict[str, str]] = []
    complete = True
    for name, info in _files(roots, path):
        if stopped() or budget.files == 0:
            complete = False
            break
        budget.files -= 1
        count, size, changed = count + 1, size + info.st_size, max(changed, info.st_mtime)
        if len(reports) < REPORTS and budget.reports and _may_be_report(name, info.st_size):
            reports += _report(roots, Path(name), budget)
    if not count:
        return {}
    row: dict[str, Any] = {
        "path": roots.shown(path),
        "kind": "folder" if path.is_dir() else "file",
        "files": count,
        "bytes": size,
        "changed": text.utc(changed, "%Y-%m-%dT%H:%M:%SZ"),
    }
    if reports:
        row["reports"] = reports
    return row if complete else {**row, "more_files": True}


def _files(roots: Roots, path: Path) -> Iterable[tuple[str, os.stat_result]]:
    if not path.is_dir():
        return [(str(path), path.lstat())]
    return ((entry.path, entry.stat(follow_symlinks=False)) for entry in roots.below(path))


def _may_be_report(name: str, size: int) -> bool:
    return name.endswith((".html", ".json")) and size <= LARGEST


def _report(roots: Roots, path: Path, budget: _Budget) -> list[dict[str, str]]:
    """Its headline, where it is one of ours."""
    try:
        with roots.find(str(path)).open("rb") as file:
            head = file.read(HEAD)
        if b'"postmortem/incident/1"' not in head and b'content="postmortem"' not in head:
            return []
        budget.reports -= 1
        said = view.headline(document(path))
    except (OSError, PostmortemError):
        return []
    return [{"path": roots.shown(path), "headline": text.sentence(said, 200)}]
