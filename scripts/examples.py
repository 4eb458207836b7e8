"""Rendered reports of the incidents of sample_logs/ -> reports/examples/.

    python scripts/examples.py            writes them anew (or: make examples)
    python scripts/examples.py --check    list those that are out of date; exit 1 if any is

Of each incident the Markdown, which a repository's pages show as it is, and of at least one of each kind of
failure the HTML: all of that would be twelve megabytes. The pattern library's hash is left out, so that an
example changes only with the report itself. A test renders them anew and compares. reports/examples/README.md
lists them with today's headlines.
"""

from __future__ import annotations

import base64
import gzip
import re
import sys
from pathlib import Path
from typing import NamedTuple

from postmortem import analyze, report

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "reports" / "examples"
SAMPLES = tuple(sorted(folder.name for folder in (ROOT / "sample_logs").iterdir() if (folder / "logs").is_dir()))
PAGES = (
    "bad-label-one-rank",
    "cut-checkpoint",
    "descriptors-leak",
    "dev-shm-8mb",
    "elastic-recovers-on-one-console",
    "gpu-illegal-access",
    "gpu-out-of-memory",
    "healthy-two-hosts",
    "link-cut-between-hosts",
    "nan-after-bad-sample",
    "nccl-on-cpu-node",
    "oom-on-second-host",
    "rank-frozen",
    "second-host-lost",
    "second-node-never-came",
    "segfault-with-faulthandler",
    "shard-not-copied",
    "sigkill-from-outside",
    "skipped-collective",
    "slurm-preempted",
    "unused-head",
)
HEAD = """# Rendered reports

The reports of `postmortem analyze` on the recorded incidents in [sample_logs](../../sample_logs/README.md): the
Markdown of each (`--format md`), and of one of each kind the HTML report, a single file: download it and
open it in a browser.
`make examples` renders them anew.

| incident | category | verdict |
|---|---|---|
"""


class Example(NamedTuple):
    """The files of a sample, and its line of the list."""

    files: dict[str, str]
    line: str
    category: str


def rendered(name: str) -> Example:
    incident = analyze([str(ROOT / "sample_logs" / name / "logs")])
    incident.document["tool"].pop("library")  # type: ignore[misc]  # it changes with every pattern
    verdict = incident.document["verdict"]
    headline = " ".join(str(verdict["headline"]).split()).replace("|", "\\|")
    files = {f"{name}.md": report.render_markdown(incident)}
    if name in PAGES:
        files[f"{name}.html"] = report.render_html(incident)
    page = f" ([HTML]({name}.html))" if name in PAGES else ""
    category = str(verdict["category"] or verdict["outcome"])
    return Example(files, f"| [{name}]({name}.md){page} | {category} | {headline} |\n", category)


def everything() -> dict[str, str]:
    """All files of the folder, by name."""
    examples = [rendered(name) for name in SAMPLES]
    files = {name: text for one in examples for name, text in one.files.items()}
    return files | {"README.md": HEAD + "".join(one.line for one in examples)}


def same(page: str, present: str) -> bool:
    """Return whether two renderings are equal, with their events before compression: builds of zlib differ."""
    return page == present or _unpacked(page) == _unpacked(present)


def _unpacked(page: str) -> tuple[str, bytes]:
    block = re.search(r'id="postmortem-events">([^<]*)<', page)
    return (page.replace(block[1], ""), gzip.decompress(base64.b64decode(block[1]))) if block else (page, b"")


def outdated(files: dict[str, str]) -> list[str]:
    """Return the names of missing, changed and extra files."""
    present = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    return sorted(
        name
        for name in files.keys() | present.keys()
        if name not in files or name not in present or not same(files[name], present[name])
    )


def main() -> int:
    files = everything()
    stale = outdated(files)
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"out of date: reports/examples/{name}")
        if stale:
            print(f"run {sys.executable} scripts/examples.py (or: make examples), and review the changes")
        return 1 if stale else 0
    for name in stale:
        (FOLDER / name).unlink(missing_ok=True)
        if name in files:
            (FOLDER / name).write_text(files[name], encoding="utf-8")
    print(f"{len(SAMPLES)} incidents, {sum(file.stat().st_size for file in FOLDER.iterdir()) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
