r"""Sources -> hits: one pass over the bytes for all patterns at once.

    engine = Engine.compile(load().signatures())
    scan(source, open("rank3.log", "rb"), engine).hits
    ->   (Hit(line=1204, …, matches=(Match("nccl-remote-error", {…}),)), …)

`gates` derives the automaton's expressions, `engine` runs it, `reader` reads the bytes, `lines` finds lines,
`parts` divides a large file, `cleaning` and `confirm` apply the exact regexes, `tally` remembers the first and
the last lines of each pattern, `hits` adds the lines around them, `cost` measures a pattern.
"""

from __future__ import annotations

from postmortem.input.streams import Readable
from postmortem.scan.engine import NUMBER, SHIFT, Engine, own_engine
from postmortem.scan.gates import gate_of
from postmortem.scan.lines import Limits, scan
from postmortem.scan.parts import Part, joined, parts, reads_from, scan_part

__all__ = [
    "NUMBER", "SHIFT", "Engine", "Limits", "Part", "Readable", "gate_of", "joined", "own_engine", "parts",
    "reads_from", "scan", "scan_part",
]  # fmt: skip
