r"""Lines of a sample -> what may be in each of them, found by one automaton: so that slow regexes run on few lines.

    b"epoch 0 step 15 loss 2.28\nhello\nTraining finished.\n"  ->  [STEP, 0, BYE]

Nearly every line of a healthy log names a step, and only the first and the last step matter. A mark is a cheap superset of
`progress`'s regex; where the raw line is not what the regex will see (colours, JSON), a line has all marks.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from postmortem import scan
from postmortem.patterns import Signature
from postmortem.scan.engine import NUMBER, SHIFT

STEP, BYE, NOTICE, MILESTONE, FACTS = 1, 2, 4, 8, 16
ALL = STEP | BYE | NOTICE | MILESTONE | FACTS
PICKED = ((FACTS, 3, 0), (NOTICE, 1, 1), (BYE, 0, 2), (MILESTONE, 0, 1))  # how many of a kind are read, first and last
_GATES: tuple[tuple[int, str], ...] = (
    (STEP, r"(?i:\b(?:step|iteration|iter|batch|update|it|global[_ ]?step)s?_?[ =:#\[(/]{0,4}[0-9])"),
    (STEP, r"Epoch:? ?(?:\[[0-9]|[0-9]{1,6}[ :]{0,4}\[)|\| +[0-9]{1,9}/[0-9]+ \[|(?i:\bloss'?\"?[ =:]{1,3}[-+0-9])"),
    (
        BYE,
        (
            r"(?i:\b(?:training|train|run|job|fit|trial|experiment|script|benchmark|evaluation|epochs?)\b[^.\n]{0,80}"
            r"\b(?:finished|completed?|done|ended|succeeded|successful|stopped))"
        ),
    ),
    (BYE, r"(?i:finished|completed|all done|exiting normally|\bbye\b|fit` stopped|# Avg bus bandwidth|exit: 0 failed|Exiting with code 0)"),
    (NOTICE, r"\b(?:WARN|ERROR|CRITICAL|FATAL)"),
    (NOTICE, r"\b(?:[Ss]kip|[Ee]xception|[Ff]ailed|[Rr]etry|[Cc]ould not|[Cc]annot|[Uu]nable to|[Ss]tall|corrupt)"),
    (
        MILESTONE,
        r"(?i:\b(?:epoch|shard|phase|round|stage)\b[^.\n]{0,100}\b(?:finished|done|complete|end)|\b[0-9]+ batches)",
    ),
    (FACTS, r"(?i:\brank[ =:]*[0-9]{1,6}(?: of |/|,? ?(?:world[_ ]size|nranks)[ =:]+)[0-9])"),
    (FACTS, r"""\b(?:world[_ ]size|nranks|nRanks|num_processes)["']?[ =:]+[0-9]|\bbusId [0-9a-f]{3}"""),
    (FACTS, r"\btorch(?:[ _]version)?[ =:]+[0-9]\.|NCCL version [0-9]"),
)


_OWN = threading.local()  # an engine's scratch memory is no two threads' at once


def _engine(left_out: int) -> tuple[scan.Engine, tuple[int, ...]]:
    if not hasattr(_OWN, "engines"):
        _OWN.engines = {}
    engines: dict[int, tuple[scan.Engine, tuple[int, ...]]] = _OWN.engines
    if left_out not in engines:
        gates = [(mark, gate) for mark, gate in _GATES if mark != left_out]
        signatures = [Signature(f":{n}", gate) for n, (_, gate) in enumerate(gates)]
        engines[left_out] = scan.Engine.compile(signatures), tuple(mark for mark, _ in gates)
    return engines[left_out]


def marks(lines: Sequence[bytes], data: bytes, left_out: int = 0) -> list[int]:
    r"""Return what may be in each of the lines, which are `data` split at `\n`. Not asked is whether they have a mark `left_out`."""
    if b"\x1b" in data:
        return [ALL] * len(lines)
    found = [0] * len(lines)
    if data[:1] == b"{" or b"\n{" in data:
        found = [ALL if line[:1] == b"{" else 0 for line in lines]
    engine, meanings = _engine(left_out)
    ends = list(accumulate(len(line) + 1 for line in lines))
    for key in engine.find(data) if lines else ():
        found[min(bisect_right(ends, (key >> SHIFT) - 1), len(found) - 1)] |= meanings[key & NUMBER]
    return found


def picked(found: Sequence[int]) -> Iterator[int]:
    """Choose lines by what may be in them: the first and the last of each kind."""
    for mark, first, last in PICKED:
        places = [i for i, marks_ in enumerate(found) if marks_ & mark]
        yield from places[:first]
        if last:
            yield from places[-last:]
