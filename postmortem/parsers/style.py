"""A file's first lines -> how it labels all of them: srun's task, a host, a runner's process, a column
of ranks, the margin of a paste."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from postmortem.digits import whole


@dataclass(frozen=True, slots=True)
class Style:
    """How one file labels its lines, learnt from its head."""

    srun: bool = False
    host: bool = False
    column: str = ""  # a key of COLUMNS
    margin: bool = False  # the whole file was pasted as a quotation
    label: str = ""  # a key of LABELS
    lead: str = ""  # a regex of what stands in front of each line, but for its writer's number the same: `[worker-3] `


_SLURM = ("srun:", "slurmstepd", "*** ")  # writes between the tasks
SRUN = re.compile(r" {0,5}(\d{1,5}):(?!\d) ?")  # and no clock that stands first in every line
HOST = re.compile(
    r"((?:\d{1,3}\.){3}\d{1,3}|[A-Za-z][\w.-]*\d[\w.-]*)(?:: | +\| )(?=\s*\S)"
)  # pdsh, docker compose
COLUMNS = {
    "pipe": re.compile(r"(?:[^|\n]{1,40}\|){0,2} *(\d{1,5}) *\| "),
    "colon": re.compile(r"(\d{1,5}): "),
    "angle": re.compile(r"<(?:r|rank ?)?(\d{1,5})> "),
    "slash": re.compile(r"[^\[\n]{0,40}\[(\d{1,5})/\d{1,5}\] "),
    "square": re.compile(r"(?:[\d:.,TZ +-]{8,35} )?\[(\d{1,5})\] "),  # `[3] step 9`, with a time before it
    "key": re.compile(r".{0,300}\s(?:global_)?rank=(\d{1,5})(?:\s+\w+=\S+)*\s*$"),  # structlog's console
}
LABELS = {  # the process that a runner, or the pod that an export puts in front
    "runner": re.compile(r"(?:\d\d:\d\d:\d\d )([\w.-]{1,60}) +\| ?"),  # honcho, foreman
    "tab": re.compile(
        r"(?:\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d)\t)?([^\t ]{1,60})\t"
    ),  # parallel --tag, Loki
}
_LEADS = (
    re.compile(r"([^\d\n]{0,40})(\d{1,5})((?:/\d{1,5})?(?:[^\w\s]{0,3}[\])>:|}][ \t]?|\t| +\| ?))"),
    # stern: pod and container
    re.compile(r"([^\d\n]{1,40})(\d{1,5})([\w/.-]{0,20}[\])]?(?: +\| ?| (?:[a-z][\w-]{0,20} )?))"),
)
_COUNTED = re.compile(  # numbers that are no writer's, and that the reader of progress has to see
    r"(?:step|epoch|iter|iteration|it|batch|update|layer|block|stage|phase|fold|shard|part|chunk|trial|round|attempt"
    r"|sample|example|file|line|frame|seed|expert|head|bucket|level|version|v)s?\W*$",
    re.IGNORECASE,
)
RANKED = re.compile(r"(?:^|[._/-])rank[ ._=-]?(\d{1,6})(?=[._/-]|$)", re.IGNORECASE)
_RUNNER = re.compile(
    r"pdsh@|\[[\d-]{10} [\d:,]{12}\] \[[A-Z]+\] \[(?:multinode_)?runner\.py:"
)  # DeepSpeed's head, which labels the others' lines


def learn(lines: Iterable[str]) -> Style:
    """Decide from a file's first lines what every line carries in front."""
    some = [line for line in lines if line.strip() and not _RUNNER.match(line)][:200]
    if len(some) < 3:
        return Style()
    tasks = {m[1] for line in some if (m := SRUN.match(line))}
    labelled = 0 < len(tasks) < len(some) and _mostly(
        some, lambda line: SRUN.match(line) or line.startswith(_SLURM)
    )
    host = _mostly(some, lambda line: HOST.match(line) if ": " in line or " | " in line else None)
    column = "" if labelled else next((name for name in COLUMNS if _of_ranks(name, some)), "")
    label = next((name for name, form in LABELS.items() if not labelled and _mostly(some, form.match)), "")
    margin = _mostly(some, lambda line: line.startswith(">"))
    lead = "" if labelled or label or column or margin else _lead(some)
    return Style(labelled, host and not lead, column, margin, label, lead)


def _lead(lines: list[str]) -> str:
    """What numbered writers have in front of their lines, who write in turns: a regex of it, with the
    number."""
    for form in _LEADS:
        found = [m for line in lines if (m := form.match(line))]
        shapes = Counter((m[1], m[3]) for m in found)
        if not shapes or shapes.most_common(1)[0][1] * 5 < len(lines) * 4:
            continue
        before, behind = shapes.most_common(1)[0][0]
        numbers = [whole(m[2]) for m in found if (m[1], m[3]) == (before, behind)]
        seen = Counter(numbers)
        downs = sum(1 for a, b in pairwise(numbers) if b < a)
        if (
            2 <= len(seen) == max(seen) + 1
            and min(seen.values()) > 1
            and downs
            and not _COUNTED.search(before)
        ):
            return rf"{re.escape(before)}(\d{{1,5}}){re.escape(behind)}"
    return ""


def _mostly(lines: list[str], test: Callable[[str], object]) -> bool:
    """Whether four lines of five pass; a file of another style is known after the first fifth."""
    misses = len(lines) // 5
    for line in lines:
        if not test(line):
            misses -= 1
            if misses < 0:
                return False
    return True


def _of_ranks(name: str, lines: list[str]) -> bool:
    """Whether the numbers in this column are those of ranks that write in turns: all from 0 on, each
    again and again, up and down."""
    found = [whole(m[1]) for line in lines if (m := COLUMNS[name].match(line))]
    if len(found) < 6:
        return False
    downs = sum(1 for a, b in pairwise(found) if b < a)
    ranks = set(found)
    return (
        len(ranks) >= 2
        and ranks == set(range(len(ranks)))
        and downs >= 3
        and all(found.count(r) >= 3 for r in ranks)
    )
