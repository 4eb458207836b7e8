"""The style of a file, learned from its first lines: the label that each of its lines has in front."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise

from postmortem.model.digits import whole
from postmortem.system import forms


@dataclass(frozen=True, slots=True)
class Style:
    """The labels of one file."""

    srun: bool = False
    host: bool = False
    column: str = ""  # a key of COLUMNS
    margin: bool = False  # the whole file was pasted as a quotation
    label: str = ""  # a key of LABELS
    lead: str = ""  # a regex of the label of numbered writers: `[worker-3] `
    word: str = ""  # a regex of the word and number of the writer, near the begin of a line


MOST = 512  # the largest rank with which a node begins
ENOUGH = 100  # lines that are searched for numbered writers
NEAR = 120  # characters of a line that are searched for its writer
_ROWS, _REGEXES = forms.rows("formats/envelopes"), forms.regexes("formats/envelopes")
SRUN, HOST = _REGEXES["srun"], _REGEXES["host"]
COLUMNS, LABELS = ({name: _REGEXES[name] for name, row in _ROWS.items() if key in row} for key in ("column", "label"))
_LEADS = [_REGEXES[name] for name, row in _ROWS.items() if "lead" in row]
_WORDS = {name: row["least"] for name, row in _ROWS.items() if "least" in row}


def rank_in(label: str) -> int | None:
    """The rank that a label contains: `train-rank2`."""
    m = _REGEXES["ranked"].search(label)
    return whole(m[1]) if m else None


def learn(lines: Iterable[str]) -> Style:
    """The style that the first lines of a file show."""
    some = [line for line in lines if line.strip() and not _REGEXES["head-node"].match(line)][:200]
    if len(some) < 3:
        return Style()
    if all(line.startswith(">") for line in some[:3]) and _mostly(some, lambda line: line.startswith(">")):
        return Style(margin=True)
    tasks = {m[1] for line in some if (m := SRUN.match(line))}
    slurm = ("srun:", "slurmstepd", "*** ")  # lines between those of the tasks
    if 0 < len(tasks) < len(some) and _mostly(some, lambda line: SRUN.match(line) or line.startswith(slurm)):
        return Style(srun=True)
    host = _mostly(some, lambda line: HOST.match(line) if ": " in line or " | " in line else None)
    column = next((name for name in COLUMNS if _is_rank_column(name, some)), "")
    label = next((name for name, form in LABELS.items() if _mostly(some, form.match)), "")
    own = [line for line in some if not _REGEXES["foreign"].match(line)][:ENOUGH]
    lead = "" if label or column else _lead(own)
    word = "" if label or column or lead else _word(own)
    return Style(host=host and not lead, column=column, label=label, lead=lead, word=word)


def _lead(lines: list[str]) -> str:
    """A regex of the label, if numbered writers alternate; else an empty string."""
    for form in _LEADS:
        found = [(m["lead"], _masked(m["behind"]), whole(m["n"])) for m in _of_half(lines, form.match)]
        shapes = Counter((lead, behind) for lead, behind, _ in found)
        if not shapes:
            continue
        (lead, behind), count = shapes.most_common(1)[0]
        if _REGEXES["tee-lead"].match(lead) and behind.startswith("\\]:"):
            continue
        numbers = [n for *shape, n in found if shape == [lead, behind]]
        least, share = (1, 5) if _REGEXES["writer-lead"].search(lead) else (2, 8)
        if count * 10 >= len(lines) * share and _are_writers(numbers, least, lead):
            return rf"{form.pattern.partition('(?P<lead>')[0]}(?P<who>{re.escape(lead)}\d{{1,5}}){behind}"
    return ""


def _word(lines: list[str]) -> str:
    """A regex of the word beside the numbers of alternating writers: `[round: 0] [replica: 2]`, `Engine[1] INFO`."""
    for name, least in _WORDS.items():
        form = _REGEXES[name]
        found = [(m["word"].lower(), whole(m["n"])) for m in _of_half(lines, partial(form.search, endpos=NEAR))]
        for word, count in Counter(word for word, _ in found).most_common(3):
            numbers = [n for other, n in found if other == word]
            if count * 2 >= len(lines) and count > 3 and _are_writers(numbers, least, word):
                any_word = r"\(\?P<word>\\b\(\?:[^)]*\)\)"
                return re.sub(any_word, f"(?P<word>{word})", form.pattern) if word else form.pattern
    return ""


def _of_half(lines: list[str], find: Callable[[str], re.Match[str] | None]) -> list[re.Match[str]]:
    """The matches, if at least half of the lines have one."""
    found, misses = [], len(lines) // 2
    for line in lines:
        if m := find(line):
            found.append(m)
        elif (misses := misses - 1) < 0:
            return []
    return found


@lru_cache(maxsize=1024)
def _masked(behind: str) -> str:
    """The text behind the number of a writer, as a regex: a pid and the size of the job are numbers too."""
    return re.sub(r"\d+", r"\\d{1,8}", re.escape(behind))


def _are_writers(numbers: list[int], least: int, lead: str) -> bool:
    """Whether numbers are those of writers: consecutive, each at least `least` times, not sorted, not counted
    by a loop. The numbers of a second node begin where those of the first end."""
    seen = Counter(numbers)
    downs = any(b < a for a, b in pairwise(numbers))
    first = min(seen, default=0)
    placed = first == 0 or 2 <= first <= MOST
    complete = 2 <= len(seen) == max(seen, default=0) - first + 1
    return placed and complete and min(seen.values()) >= least and downs and not _REGEXES["counted-lead"].search(lead)


def _mostly(lines: list[str], test: Callable[[str], object]) -> bool:
    """Whether four lines of five pass."""
    misses = len(lines) // 5
    return not any(not test(line) and (misses := misses - 1) < 0 for line in lines)


def _is_rank_column(name: str, lines: list[str]) -> bool:
    """Whether the numbers in this column are those of alternating ranks: all from 0 on, each repeatedly."""
    part, form = _ROWS[name]["column"], COLUMNS[name]
    found = [whole(m[1]) for line in lines if part in line and (m := form.match(line))]
    downs = sum(1 for a, b in pairwise(found) if b < a)
    ranks = set(found)
    return len(ranks) >= 2 and ranks == set(range(len(ranks))) and downs >= 3 and min(map(found.count, ranks)) >= 2
