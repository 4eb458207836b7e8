"""Items that `postmortem collect` takes, in the order in which they are lost; the table is `collected.json`.

A way is a command as a list of arguments, or `read:NAME` and arguments for a reader of ours, which needs no tool.
The first way that yields something is enough. Words in capitals are filled in. No way changes the state of a
host: no reset, no signal, no memory image, no stopped process. This module runs on Python 3.8 too.
"""

from __future__ import annotations

import json
import pkgutil
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Way = tuple[str, ...]


@dataclass(frozen=True)
class Item:
    """One thing to take. `silent` lists programs that report by printing nothing that there was nothing."""

    name: str  # of its file
    why: str
    ways: tuple[Way, ...]
    limit: float = 10.0  # seconds for each way
    state: bool = True  # no log: `analyze` searches it for no failure
    silent: tuple[str, ...] = ()
    end: bool = False  # if it is too long, the end is saved instead of the beginning


def _items(rows: list[dict[str, Any]]) -> tuple[Item, ...]:
    split = ({**row, "ways": tuple(tuple(shlex.split(way)) for way in row["ways"])} for row in rows)
    return tuple(Item(**row) for row in split)


_DATA = json.loads(pkgutil.get_data("postmortem.model", "collected.json") or b"")
WORDS: dict[str, str] = _DATA["words"]  # names, separated by spaces, and regexes of the readers
_TABLE = {group: _items(rows) for group, rows in _DATA["items"].items()}
# STACK: no tool stops the process, since a tool that is killed meanwhile would leave it stopped; py-spy comes
# twice, since a running rank may have changed its frames while they were read.
STACK, PROCESS, RECORDER = _TABLE["rank"]
CORE, CORE_STACK = _TABLE["core"]
HOST = _TABLE["host"]
LIBRARIES, ENVIRONMENT = _TABLE["settings"]
SLURM, KUBERNETES, POD = _TABLE["slurm"], _TABLE["kubernetes"], _TABLE["pod"]
ALL = tuple(item for items in _TABLE.values() for item in items)

# Commands that reports recommend
PY_SPY = ("py-spy", "dump", "--pid", "PID")
_KERNEL = next(item for item in HOST if item.name == "kernel.log")
KERNEL_JOURNAL, KERNEL_DMESG = _KERNEL.ways[0][:4], _KERNEL.ways[-1]
SACCT, PREVIOUS = SLURM[0].ways[0], POD[0].ways[0]


def shown(way: Way) -> str:
    """Return a way as one line to read or to paste."""
    return " ".join(f'"{word}"' if not word or " " in word else word for word in way)


def filled(way: Way, **words: str) -> Way:
    """Return a way with its words in capitals filled in. A value is one argument, whatever it holds."""
    return tuple(words.get(word, word) for word in way)


def listing() -> str:
    """Return the items: file, reason, commands."""
    return "\n".join(f"{item.name}\n  {item.why}\n  {' | '.join(map(shown, item.ways))}" for item in ALL)
