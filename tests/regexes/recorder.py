"""Prints each regex of the package as JSON: source, flags, whether of bytes, its methods, its longest text."""

from __future__ import annotations

import importlib
import json
import pkgutil
import random
import re
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))
SEARCHES = ("search", "sub", "subn", "split", "findall", "finditer")
UNSEEN = 1 << 13  # characters for a regex that these logs do not reach
LEAST = 800  # the names of these logs are short
WITHOUT = ("torchrun", "hooks", "__main__", "hook", "replay", "migrations")
compiled = re.compile
used: dict[tuple[str, int, bool], tuple[set[str], list[int]]] = defaultdict(lambda: (set(), [0]))


class Recorded:
    """A regex that records its calls."""

    def __init__(self, known: re.Pattern[Any]) -> None:
        self.known = known
        is_bytes = isinstance(known.pattern, bytes)
        self.methods, self.size = used[
            known.pattern.decode("latin1") if is_bytes else known.pattern, known.flags, is_bytes
        ]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.known, name)
        if name not in (*SEARCHES, "match", "fullmatch"):
            return found

        def call(*words: Any, **more: Any) -> Any:
            text, *span = words[1:2] if name in ("sub", "subn") else words[:1] if name == "split" else words
            first, last = span[0] if span else 0, span[1] if len(span) > 1 else len(text)
            self.methods.add("search" if name in SEARCHES else "match")
            self.size[0] = max(self.size[0], min(last, len(text)) - first)
            return found(*words, **more)

        return call

    def __reduce__(self) -> Any:
        return compiled, (self.known.pattern, self.known.flags)


def recorded(pattern: Any, flags: int = 0) -> Any:
    frame: Any = sys._getframe(1)
    if "/postmortem/" not in frame.f_code.co_filename:
        return compiled(pattern, flags)
    return Recorded(compiled(pattern, flags))


def stretched(text: str, rng: random.Random) -> str:
    """The same with every fourth line very long."""
    lines = text.splitlines()
    for number in range(0, len(lines), 4):
        at = rng.choice((0, len(lines[number]), rng.randrange(len(lines[number]) + 1)))
        lines[number] = (
            lines[number][:at] + rng.choice(("x", "0", "a0", "_", ". ", "-", " ")) * 20_000 + lines[number][at:]
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    re.compile = recorded
    from postmortem.system import lazy

    lazy.regex = recorded
    import postmortem

    for module in pkgutil.walk_packages(postmortem.__path__, "postmortem."):
        if not any(word in module.name for word in WITHOUT):
            importlib.import_module(module.name)
    from postmortem import report
    from postmortem.analyze import Options, analyze
    from postmortem.system import forms

    for file in (ROOT / "postmortem").rglob("*.yaml"):
        name = str(file.relative_to(ROOT / "postmortem").with_suffix(""))
        if "tools" not in name:
            forms.regexes(name)
    rng = random.Random(3)
    for path in sorted((ROOT / "tests" / "data" / "excerpts").glob("*.yaml")):
        for number, case in enumerate(yaml.safe_load(path.read_text()).values()):
            if number % 3:
                continue
            with tempfile.TemporaryDirectory() as folder:
                for name, text in (case.get("files") or {"train.log": case["log"]}).items():
                    target = Path(folder, name)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_text(stretched(text, rng))
                incident = analyze([folder], Options(workers=1))
                for form in (report.render_html, report.render_markdown, report.render_json):
                    form(incident)
    rows = [
        (*key, sorted(methods) or ["match"], max(size[0], LEAST) if methods else UNSEEN)
        for key, (methods, size) in used.items()
    ]
    print(json.dumps(rows))


main()
