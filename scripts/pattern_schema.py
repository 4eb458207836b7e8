"""Write patterns/schema.json from the types; with --check, only report whether it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from postmortem.library.schema import text

TARGET = Path(__file__).resolve().parent.parent / "patterns" / "schema.json"


def main() -> int:
    if "--check" in sys.argv[1:]:
        fresh = TARGET.is_file() and TARGET.read_text() == text()
        print("up to date" if fresh else f"stale: run {sys.executable} scripts/pattern_schema.py")
        return 0 if fresh else 1
    TARGET.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
