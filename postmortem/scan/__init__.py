r"""Sources -> hits: one pass over the bytes for all patterns at once.

    engine = Engine.compile(load().signatures())
    scan(source, open("rank3.log", "rb"), engine).hits
    ->   (Hit(line=1204, …, matches=(Match("nccl-remote-error", {…}),)), …)

`gates` makes what the automaton looks for, `engine` runs it, `reader` brings the bytes, `lines` finds lines,
`parts` divides a large file, `cleaning` and `confirm` ask the exact regexes, `tally` keeps the first and the
last lines of each pattern, `hits` brings what stands around them, `cost` says what a pattern costs.
"""

from __future__ import annotations

from postmortem.scan.cost import cost, healthy, healthy_lines, slowness
from postmortem.scan.engine import NUMBER, SHIFT, Engine, own_engine
from postmortem.scan.gates import gate_of
from postmortem.scan.lines import Limits, scan
from postmortem.scan.parts import Part, joined, parts, reads_from, scan_part
from postmortem.scan.reader import Readable

__all__ = [
    "NUMBER", "SHIFT", "Engine", "Limits", "Part", "Readable", "cost", "gate_of", "healthy", "healthy_lines",
    "joined", "own_engine", "parts", "reads_from", "scan", "scan_part", "slowness",
]  # fmt: skip
