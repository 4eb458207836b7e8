"""Rendered reports of some incidents of sample_logs/ -> reports/examples/, one of each kind of failure.

    python scripts/examples.py            (or: make examples)

All of sample_logs/ would be megabytes of HTML that change with every pattern; these show what a report looks like. A test
renders them anew and compares. reports/examples/README.md lists them with today's headlines.
"""

from __future__ import annotations

import sys
from pathlib import Path

from postmortem import analyze, report

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "reports" / "examples"
EXAMPLES = (
    "host-oom-cache-of-rank-2",
    "oom-on-second-host",
    "bad-label-one-rank",
    "rank-frozen",
    "skipped-collective",
    "segfault-with-faulthandler",
    "nan-after-bad-sample",
    "shard-not-copied",
    "second-node-never-came",
    "sigkill-from-outside",
    "pipeline-all-receive",
    "healthy-two-hosts",
)
HEAD = """# Rendered reports

What `postmortem analyze` makes of some of the recorded incidents in [sample_logs](../../sample_logs/README.md). Each file stands alone:
download it and open it in a browser. `make examples` renders them anew.

| incident | verdict |
|---|---|
"""


def rendered(name: str) -> tuple[str, str]:
    """The report of a sample, and its line of the list."""
    incident = analyze([str(ROOT / "sample_logs" / name / "logs")])
    headline = " ".join(str(incident.document["verdict"]["headline"]).split()).replace("|", "\\|")
    return report.render_html(incident), f"| [{name}]({name}.html) | {headline} |\n"


def main() -> int:
    lines = []
    for name in EXAMPLES:
        page, line = rendered(name)
        (FOLDER / f"{name}.html").write_text(page, encoding="utf-8")
        lines.append(line)
        print(f"{len(page.encode()) / 1000:6.0f} kB  {name}")
    (FOLDER / "README.md").write_text(HEAD + "".join(lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
