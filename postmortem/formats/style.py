"""A file's first lines -> how it labels all of them: srun's task, a host, a runner's process, a column
of ranks, the margin of a paste."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise

from postmortem.model.digits import whole
from postmortem.system import lazy as late


@dataclass(frozen=True, slots=True)
class Style:
    """How one file labels its lines, learnt from its head."""

    srun: bool = False
    host: bool = False
    column: str = ""  # a key of COLUMNS
    margin: bool = False  # the whole file was pasted as a quotation
    label: str = ""  # a key of LABELS
    lead: str = ""  # a regex of what stands in front of each line, but for its writer's number the same: `[worker-3] `
    word: str = ""  # a regex of the word and number that name the writer anywhere near the line's head


_SLURM = ("srun:", "slurmstepd", "*** ")  # writes between the tasks
SRUN = late.regex(r" {0,5}(\d{1,5}):(?!\d) ?")  # and no clock that stands first in every line
HOST = late.regex(r"((?:\d{1,3}\.){3}\d{1,3}|[A-Za-z][\w.-]*\d[\w.-]*)(?:: | +\| )(?=\s*\S)")  # pdsh, docker compose
COLUMNS = {
    "pipe": late.regex(r"(?:[^|\n]{1,40}\|){0,2} *(\d{1,5}) *\| "),
    "colon": late.regex(r"(\d{1,5}): "),
    "angle": late.regex(r"<(?:r|rank ?)?(\d{1,5})> "),
    "slash": late.regex(r"[^\[\n]{0,40}\[(\d{1,5})/\d{1,5}\] "),
    "square": late.regex(r"(?:[\d:.,TZ +-]{8,35} )?\[(\d{1,5})\] "),  # `[3] step 9`, with a time before it
    "key": late.regex(r".{0,300}\s(?:global_)?rank=(\d{1,5})(?:\s+\w+=\S+)*\s*$"),  # structlog's console
}
PARTS = dict(zip(COLUMNS, ("|", ": ", "<", "/", "[", "rank="), strict=True))  # what a line must have for each
LABELS = {  # the process that a runner, or the pod that an export puts in front
    "runner": late.regex(r"(?:\d\d:\d\d:\d\d )([\w.-]{1,60}) +\| ?"),  # honcho, foreman
    "tab": late.regex(
        r"(?:\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d)\t)?([^\t ]{1,60})\t"
    ),  # parallel --tag, Loki
}
# what a logger may put before who writes: `20261122-130634 `, `11-22 13:19:12 `, `[12:01:02,417] INFO `
_BEFORE = (
    r"(?P<at>(?:\[?(?:(?:\d{4}[-/.]?)?\d\d[-/.]?\d\d(?:/\d{4})?[ T_-]?)?\d\d:?\d\d:?\d\d(?:[.,]\d{1,9})?"
    r"(?:Z|[+-]\d\d:?\d\d)?\]?[ |:,-]{1,3}| {8,24})?"
    r"(?:(?:[A-Za-z_][\w.]{1,60} [-|] )?[\[(<]?(?:DEBUG|INFO|WARN(?:ING)?|ERROR)[\])>]?[ :|-]{1,3}"
    r"(?:[A-Za-z_][\w.]{1,60} [-|] )?)?)"
)
_PROCESS = r"(?:[ ,;/]{1,2}(?:of |pid[ =:]?|PID[ =:]?|world[ =:]?|/)?\d{1,8})?"  # `[bench 3/4 pid 32481] `
_LEADS = tuple(
    late.regex(_BEFORE + form)
    for form in (
        rf"(?P<lead>[^\d\n]{{0,40}})(?P<n>\d{{1,5}})(?P<behind>{_PROCESS}{_PROCESS}(?:[^\w\s.,;=/-]{{1,3}}[ \t]?|\t| +\| ?))",
        r"(?P<lead>(?:rank|rk|worker|proc|process|replica|trainer|gpu|task|actor|learner)[ =:#_-]{0,2})(?P<n>\d{1,5})(?P<behind>[ ,;:]{1,2})",
        # stern: pod and container
        r"(?P<lead>[^\d\n]{1,40})(?P<n>\d{1,5})(?P<behind>[\w/.-]{0,20}[\])]?(?: +\| ?| (?:[a-z][\w-]{0,20} )?))",
    )
)
_WORDS = "worker|proc|process|replica|trainer|gpu|task|actor|learner|global|member|peer|pe"
_ANY_WORD = rf"(?P<word>\b(?:{_WORDS}))"
_NAMING = (  # how often each number has to come, and what a head in small letters has where any is named so
    (
        late.regex(_ANY_WORD + r"[ =:#_-]{0,2}\"?(?P<n>\d{1,5})\b", re.IGNORECASE),
        1,
        late.regex(rf"(?:{_WORDS})[ =:#_-]{{0,2}}\"?\d"),
    ),
    (late.regex(r"\w(?P<word>)\[(?P<n>\d{1,4})\](?=[ :])"), 2, re.compile(r"\[\d")),  # `Engine[1] INFO`
    (late.regex(r"\w(?P<word>)/(?P<n>\d{1,4})(?=: )"), 2, re.compile(r"/\d")),  # `OCR/2: `
)
MOST = 512  # a rank with which a node begins
ENOUGH = 100  # lines that show whether the writers are numbered
NEAR = 120  # characters of a line in which its writer is named
_FOREIGN = late.regex(  # what torch, Python and the launcher write between the lines of a program's own logger
    r"\s|\[rank\d|Traceback |\[?[IWEF]\d{4} \d\d:|[=*_-]{4,}|(?:[\w.]{1,60}\.)?[A-Z]\w{1,40}(?:Error|Exception)\b"
    r"|(?:Current t|T)hread 0x|terminate called|/\S{1,200}: \w{0,20}Warning|torchrun|srun:|Failures:|Root Cause|\[\d+\]:$|\S+ FAILED$"
)
_TEE = late.regex(r"\[[A-Za-z_]{2,20}[ _-]?$")  # torchrun's `[default0]:`, which says the local rank
_WHO = late.regex(
    r"(?:^|[^a-z])(?:rank|rk|r|worker|w|proc|process|p|gpu|local|trainer|task|replica|actor|learner|peer)[ =:#_-]{0,2}$",
    re.IGNORECASE,
)
_COUNTED = late.regex(  # numbers that are no writer's, and that the reader of progress has to see
    r"(?:step|epoch|iter|iteration|it|batch|update|layer|block|stage|phase|fold|shard|part|chunk|trial|round|attempt"
    r"|sample|example|file|line|frame|seed|expert|head|bucket|level|version|v)s?\W*$",
    re.IGNORECASE,
)
RANKED = late.regex(r"(?:^|[._/-])rank[ ._=-]?(\d{1,6})(?=[._/-]|$)", re.IGNORECASE)
_RUNNER = late.regex(
    r"pdsh@|\[[\d-]{10} [\d:,]{12}\] \[[A-Z]+\] \[(?:multinode_)?runner\.py:"
)  # DeepSpeed's head, which labels the others' lines


def learn(lines: Iterable[str]) -> Style:
    """Decide from a file's first lines what every line carries in front."""
    some = [line for line in lines if line.strip() and not _RUNNER.match(line)][:200]
    if len(some) < 3:
        return Style()
    tasks = {m[1] for line in some if (m := SRUN.match(line))}
    labelled = 0 < len(tasks) < len(some) and _mostly(some, lambda line: SRUN.match(line) or line.startswith(_SLURM))
    host = _mostly(some, lambda line: HOST.match(line) if ": " in line or " | " in line else None)
    column = "" if labelled else next((name for name in COLUMNS if _of_ranks(name, some)), "")
    label = next((name for name, form in LABELS.items() if not labelled and _mostly(some, form.match)), "")
    margin = _mostly(some, lambda line: line.startswith(">"))
    lead = "" if labelled or label or column or margin else _lead(some)
    word = "" if labelled or label or column or margin or lead else _word(some)
    return Style(labelled, host and not lead, column, margin, label, lead, word)


def _lead(lines: list[str]) -> str:
    """What numbered writers have in front of their lines, who write in turns: a regex of it, with the
    number."""
    own = [line for line in lines if not _FOREIGN.match(line)][:ENOUGH]
    for form in _LEADS:
        found = [(m["lead"], _masked(m["behind"]), whole(m["n"])) for m in _half(own, form.match)]
        shapes = Counter((lead, behind) for lead, behind, _ in found)
        if not shapes:
            continue
        (lead, behind), times = shapes.most_common(1)[0]
        if _TEE.match(lead) and behind.startswith("\\]:"):
            continue
        numbers = [n for *shape, n in found if shape == [lead, behind]]
        named = bool(_WHO.search(lead))
        if times * 10 >= len(own) * (5 if named else 8) and _of_writers(numbers, 1 if named else 2, lead):
            return rf"{_BEFORE}(?P<who>{re.escape(lead)}\d{{1,5}}){behind}"
    return ""


def _word(lines: list[str]) -> str:
    """The word beside the numbers of writers who write in turns, where more stands before it, or not always
    the same: `[round: 0] [replica: 2]`, `ignite.engine.engine.Engine[1] INFO`."""
    own = [line for line in lines if not _FOREIGN.match(line)][:ENOUGH]
    head = "\n".join(own).lower()
    for form, least, sign in _NAMING:
        if not sign.search(head):
            continue
        matches = _half(own, partial(form.search, endpos=NEAR))
        found = [(m["word"].lower(), whole(m["n"])) for m in matches]
        words = Counter(word for word, _ in found)
        for word, times in words.most_common(3):
            numbers = [n for name, n in found if name == word]
            if times * 2 >= len(own) and times > 3 and _of_writers(numbers, least, word):
                return form.pattern.replace(_ANY_WORD, rf"(?P<word>(?i:{re.escape(word)}))")
    return ""


def _half(lines: list[str], find: Callable[[str], re.Match[str] | None]) -> list[re.Match[str]]:
    """The matches, where at least half of the lines have one."""
    found, misses = [], len(lines) // 2
    for line in lines:
        if m := find(line):
            found.append(m)
        elif (misses := misses - 1) < 0:
            return []
    return found


@lru_cache(maxsize=1024)
def _masked(behind: str) -> str:
    """What stands behind a writer's number, as a regex: its pid and the size of the job are numbers too."""
    return re.sub(r"\d+", r"\\d{1,8}", re.escape(behind))


def _of_writers(numbers: list[int], least: int, lead: str) -> bool:
    """Whether numbers are those of writers: one after the other, each `least` times, in turns; no pids, and
    nothing that a loop counts. A second node's begin where the first one's end."""
    seen = Counter(numbers)
    downs = any(b < a for a, b in pairwise(numbers))
    counted_from = min(seen, default=0)
    placed = counted_from == 0 or 2 <= counted_from <= MOST
    whole = 2 <= len(seen) == max(seen, default=0) - counted_from + 1
    return placed and whole and min(seen.values()) >= least and downs and not _COUNTED.search(lead)


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
    part, form = PARTS[name], COLUMNS[name]
    found = [whole(m[1]) for line in lines if part in line and (m := form.match(line))]
    if len(found) < 6:
        return False
    downs = sum(1 for a, b in pairwise(found) if b < a)
    ranks = set(found)
    return (
        len(ranks) >= 2 and ranks == set(range(len(ranks))) and downs >= 3 and all(found.count(r) >= 2 for r in ranks)
    )
