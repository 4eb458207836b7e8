r"""Lines of a sample -> what may be in each of them, found by one automaton:
so that slow regexes run on few lines.

    b"epoch 0 step 15 loss 2.28\nhello\nTraining finished.\n"  ->  STEP for the first line, 0, BYE

Nearly every line of a healthy log names a step, and only the first and the last step matter.
A mark is a cheap superset of
`progress`'s regex; where the raw line is not what the regex will see (colours, JSON), a line has all marks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from postmortem import scan
from postmortem.library import Signature
from postmortem.scan import NUMBER, SHIFT

STEP, BYE, NOTICE, MILESTONE, FACTS, COUNT, ANSWER = 1, 2, 4, 8, 16, 32, 64
ALL = STEP | BYE | NOTICE | MILESTONE | FACTS | COUNT | ANSWER
PICKED = (
    (FACTS, 3, 0),
    (NOTICE, 1, 1),
    (BYE, 0, 2),
    (MILESTONE, 0, 1),
)  # how many of a kind are read, first and last
_GATES: tuple[tuple[int, str], ...] = (
    (STEP, r"(?i:\b(?:step|iteration|iter|batch|update|it|global[_ ]?step)s?_?[ =:#\[(/]{0,8}[0-9])"),
    (
        STEP,
        (
            r"Epoch:? ?(?:\[[0-9]|[0-9]{1,6}[ :]{0,4}\[)|\| +[0-9]{1,9}/[0-9]+ \["
            r"|(?i:\bloss'?\"?[ =:]{1,3}[-+0-9])"
        ),
    ),
    (
        BYE,
        (
            r"(?i:\b(?:training|train|run|job|fit|trial|experiment|script|benchmark"
            r"|evaluation|epochs?|inference|generation|execution)\b[^.\n]{0,80}"
            r"\b(?:finished|completed?|done|ended|succeeded|successful|stopped))"
        ),
    ),
    (
        BYE,
        (
            r"(?i:finished|complete\b|completed|all done|\bdone[ ,:(]{1,3}[0-9]|exiting normally|\bbye\b|fit` stopped|# Avg bus bandwidth"
            r"|exit: 0 failed|Exiting with code 0|successfully|configure: exit|RESULT,|ENDING TIMING"
            r"|total (?:training|elapsed|run)|training time|RUNANDTIME_STOP| passed|\[shutdown\]|succeeded"
            r"|(?:exit|status|return|code|returned|with|\brc)[ =:]+0|\"(?:run_stop|status)\"|conclu|entrenamiento|termin)"
        ),
    ),
    (BYE, "训练|程序|学習|학습|бучение|abgeschlossen|beendet"),
    (
        COUNT,
        (
            r"(?i:[0-9] ?/ ?[0-9]|\bepochs?[\"' =:#\[]{1,4}[0-9]"
            r"|(?:process|generat|evaluat|sav|train)(?:ed|ing) \w{0,20} ?#?[0-9])"
        ),
    ),
    (ANSWER, r"HTTP/[0-9.]{1,3}\" 2|throughput|Application s|Uvicorn running|: Connected|erver is "),
    (NOTICE, r"\b(?:WARN|ERROR|CRITICAL|FATAL)"),
    (
        NOTICE,
        r"\b(?:[Ss]kip|[Ee]xception|[Ff]ailed|[Rr]etry|[Cc]ould not|[Cc]annot|[Uu]nable to|[Ss]tall|corrupt)",
    ),
    (
        MILESTONE,
        (
            r"(?i:\b(?:epoch|shard|phase|round|stage)\b[^.\n]{0,100}\b(?:finished|done|complete|end)"
            r"|\b[0-9]+ batches)"
        ),
    ),
    (
        FACTS,
        r"(?i:\brank['\"]?[ =:]*['\"]?[0-9]{1,6}(?: of |/|['\"]?,? ?['\"]?(?:world[_ ]size|nranks)['\"]?[ =:]+)['\"]?[0-9])",
    ),
    (FACTS, r"(?i:\b(?:worker|process|proc|trainer|task|replica)[ =:#]*[0-9]{1,6}(?: of |/)[0-9])"),
    (FACTS, r"""\b(?:world[_ ]size|nranks|nRanks|num_processes)["']?[ =:]+[0-9]|\bbusId [0-9a-f]{3}"""),
    (FACTS, r"\btorch(?:[ _]version)?[ =:]+[0-9]\.|NCCL version [0-9]"),
    (ALL, r"^\{(?:[^']|$)"),  # JSON
    (ALL ^ FACTS, r"^\{'"),  # a Trainer's dict, as Python prints it: nothing in it is escaped
)


def _asked(left_out: int) -> list[tuple[int, str]]:
    return [(mark, gate) for mark, gate in _GATES if mark != left_out]


def _signatures(left_out: int) -> list[Signature]:
    return [Signature(f":{n}", gate) for n, (_, gate) in enumerate(_asked(left_out))]


class Marks:
    """What may be in the lines of a sample. Not asked is whether they have a mark `left_out`."""

    def __init__(self, data: bytes, left_out: int = 0) -> None:
        self.data = data
        self.places = _places(data, left_out)

    def of(self, start: int, end: int) -> int:
        """The marks of the line data[start:end]."""
        found = 0
        for place in self.places[bisect_left(self.places, start << SHIFT) : bisect_left(self.places, end + 1 << SHIFT)]:
            found |= place & NUMBER
        return found

    def picked(self) -> set[int]:
        """Choose lines by what may be in them, the first and the last of each kind: where they begin."""
        found: set[int] = set()
        for mark, first, last in PICKED:
            found |= self._lines(iter(self.places), mark, first) | self._lines(reversed(self.places), mark, last)
        return found

    def _lines(self, places: Iterator[int], mark: int, most: int) -> set[int]:
        found: set[int] = set()
        for place in places if most else ():
            if place & mark:
                found.add(self.data.rfind(b"\n", 0, place >> SHIFT) + 1)
                if len(found) == most:
                    break
        return found


def _places(data: bytes, left_out: int) -> list[int]:
    """`offset << SHIFT | mark`, in order; the offset is of a byte on the marked line."""
    if b"\x1b" in data:
        return [at << SHIFT | ALL for at in _beginnings(data)]
    engine = scan.own_engine((__name__, left_out), lambda: _signatures(left_out))
    marks = [mark for mark, _ in _asked(left_out)]
    return [(key >> SHIFT) - 1 << SHIFT | marks[key & NUMBER] for key in engine.find(data)]


def _beginnings(data: bytes) -> Iterator[int]:
    """Where lines begin."""
    at = 0
    while at < len(data):
        yield at
        at = data.find(b"\n", at) + 1 or len(data)
