"""Versions and settings that a run prints.

    process group ready: rank 0 of 4, torch 2.5.1          versions  torch: 2.5.1
    Namespace(lr=0.1, batch_size=64, run_name='x-17')      settings  lr: 0.1, batch_size: 64
    NCCL_IB_HCA set by environment to mlx5_0               settings  NCCL_IB_HCA: mlx5_0

A setting is printed once in a file. What differs between two healthy runs of one job is none: process ids, ports,
times, names of the run, output folders, measured values. The regexes are in settings.yaml.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from postmortem.privacy.assigned import secret_key
from postmortem.reading.distinct import Once
from postmortem.system import forms

Values = dict[str, set[int | None]]  # a value, and the ranks that print it
Named = Mapping[str, Values]
MOST_NAMES = 2000  # names
_FILE = "fleet/diff/settings"
_SAME = {"pytorch": "torch", "nvidia driver": "driver"}
_OWN, _BARE, _SETTINGS = (frozenset(forms.rows(_FILE)[name]["words"].split()) for name in ("own", "bare", "settings"))
_REGEXES = forms.regexes(_FILE)


def versions(once: Iterable[Once]) -> Named:
    """Return the libraries and GPUs by name."""
    found: dict[str, Values] = {}
    for line in once:
        if line.kind == "environment":
            continue
        for m in _REGEXES["version"].finditer(line.text):
            name = m["name"].lower().replace("-", "_")
            _add(found, _SAME.get(name, name), m["version"].rstrip(".:"), line.rank)
        for m in _REGEXES["gpu"].finditer(line.text):
            _add(found, "GPU", m["name"], line.rank)
    return found


def settings(once: Iterable[Once]) -> Named:
    """Return the settings by name, without those to which one rank gives two values."""
    found: dict[str, Values] = {}
    for line in once:
        for name, value in _pairs(line):
            _add(found, name, value, line.rank)
    return {name: values for name, values in found.items() if _unambiguous(values)}


def _add(found: dict[str, Values], name: str, value: str, rank: int | None) -> None:
    if name in found or len(found) < MOST_NAMES:
        found.setdefault(name, defaultdict(set))[value].add(rank)


def _unambiguous(values: Values) -> bool:
    ranks = [rank for group in values.values() for rank in group]
    return len(ranks) == len(set(ranks))


def _pairs(line: Once) -> Iterator[tuple[str, str]]:
    if line.kind == "environment":
        m = _REGEXES["declared"].match(line.text)
        if m and not _is_own(m["name"]) and not secret_key(m["name"]):
            yield m["name"], m["value"]
        return
    for m in _REGEXES["set"].finditer(line.text):
        yield m["name"], m["value"].rstrip(".:")
    for m in _REGEXES["pair"].finditer(line.text):
        name = (m["flag"] or m["quoted"] or m["dotted"] or m["name"]).replace("-", "_")
        value = m["value"].strip("'\"").rstrip(".:")
        if value and not secret_key(name) and not _is_own(name) and not _REGEXES["measured"].search(value):
            yield name, value


def _is_own(name: str) -> bool:
    """Return whether every run has a value of its own."""
    plain = name.lower().strip("_")
    if plain in _SETTINGS or plain in _BARE:
        return plain in _BARE
    parts = plain.replace(".", "_").replace("-", "_").split("_")
    return any(part in _OWN or part.removesuffix("s") in _OWN for part in parts)
