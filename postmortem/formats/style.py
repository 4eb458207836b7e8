"""The style of a file, learned from its first lines: the label that each of its lines has in front."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import NamedTuple

from postmortem.model.digits import whole, zeros
from postmortem.system import forms


class Style(NamedTuple):
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
SRUN, HOST, RANKED = (_REGEXES[name] for name in ("srun", "host", "ranked"))
COLUMNS, LABELS = ({name: _REGEXES[name] for name, row in _ROWS.items() if key in row} for key in ("column", "label"))
_LEADS = [name for name, row in _ROWS.items() if "lead" in row]
_WORDS = {name: row["least"] for name, row in _ROWS.items() if "least" in row}
SHOWN = 1000  # characters of a line that show its style

Lines = Sequence[tuple[str, str]]  # each with its digits replaced by zeros


def rank_in(label: str) -> int | None:
    """The rank that a label contains: `train-rank2`."""
    m = RANKED.search(label)
    return whole(m[1]) if m else None


def learn(lines: Iterable[str]) -> Style:
    """The style that the first lines of a file show."""
    pairs = ((line, zeros(line[:SHOWN])) for line in lines if line.strip())
    some = [(line, alike) for line, alike in pairs if not _match("head-node", alike)][:200]
    if len(some) < 3:
        return Style()
    if all(line.startswith(">") for line, _ in some[:3]) and _mostly(some, lambda alike: alike.startswith(">")):
        return Style(margin=True)
    tasks = {_text(m, 1, line) for line, alike in some if (m := _match("srun", alike))}
    slurm = ("srun:", "slurmstepd", "*** ")  # lines between those of the tasks
    if 0 < len(tasks) < len(some) and _mostly(some, lambda alike: _match("srun", alike) or alike.startswith(slurm)):
        return Style(srun=True)
    host = _mostly(some, lambda alike: (": " in alike or " | " in alike) and _match("host", alike))
    column = next((name for name in COLUMNS if _is_rank_column(name, some)), "")
    label = next((name for name in LABELS if _mostly(some, partial(_match, name))), "")
    own = [(line, alike) for line, alike in some if not _match("foreign", alike)][:ENOUGH]
    lead = "" if label or column else _lead(own)
    word = "" if label or column or lead else _word(own)
    return Style(host=host and not lead, column=column, label=label, lead=lead, word=word)


@lru_cache(maxsize=1 << 13)
def _match(name: str, alike: str) -> re.Match[str] | None:
    """The match of a form at the begin of a line; of a word near it. Which digits a line has makes no difference to
    these forms, so that one search serves the same lines of all ranks."""
    form = _REGEXES[name]
    return form.search(alike, 0, NEAR) if name in _WORDS else form.match(alike)


def _text(m: re.Match[str], group: str | int, line: str) -> str:
    """The text of a group, with the digits of the line."""
    return line[m.start(group) : m.end(group)]


def _lead(lines: Lines) -> str:
    """A regex of the label, if numbered writers alternate; else an empty string."""
    for name in _LEADS:
        found = [(m["lead"], _masked(m["behind"]), whole(n)) for m, n in _of_half(name, lines)]
        shapes = Counter((lead, behind) for lead, behind, _ in found)
        if not shapes:
            continue
        (lead, behind), count = shapes.most_common(1)[0]
        if _REGEXES["tee-lead"].match(lead) and behind.startswith("\\]:"):
            continue
        numbers = [n for *shape, n in found if shape == [lead, behind]]
        least, share = (1, 5) if _REGEXES["writer-lead"].search(lead) or _introduced(name, lines) else (2, 8)
        if count * 10 >= len(lines) * share and _are_writers(numbers, least, lead):
            before = _REGEXES[name].pattern.partition("(?P<lead>")[0]
            return rf"{before}(?P<who>{re.escape(lead)}\d{{1,5}}){behind}"
    return ""


def _introduced(name: str, lines: Lines) -> bool:
    """Whether two writers state the number of their label as their rank: `[1] process group ready: rank 1 of 3`."""
    labels = ((_text(m, "n", line), line[m.end() :]) for line, alike in lines if (m := _match(name, alike)))
    return len({n for n, rest in labels if re.search(rf"(?i)\brank[ =:]{{1,2}}{n}\b", rest)}) > 1


def _word(lines: Lines) -> str:
    """A regex of the word beside the numbers of alternating writers: `[round: 0] [replica: 2]`, `Engine[1] INFO`."""
    for name, least in _WORDS.items():
        pattern = _REGEXES[name].pattern
        found = [(m["word"].lower(), whole(n)) for m, n in _of_half(name, lines)]
        for word, count in Counter(word for word, _ in found).most_common(3):
            numbers = [n for other, n in found if other == word]
            if count * 2 >= len(lines) and count > 3 and _are_writers(numbers, least, word):
                any_word = r"\(\?P<word>\\b\(\?:[^)]*\)\)"
                return re.sub(any_word, f"(?P<word>{word})", pattern) if word else pattern
    return ""


def _of_half(name: str, lines: Lines) -> list[tuple[re.Match[str], str]]:
    """The matches and their numbers, if at least half of the lines have one."""
    found, misses = [], len(lines) // 2
    for line, alike in lines:
        if m := _match(name, alike):
            found.append((m, _text(m, "n", line)))
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


def _mostly(lines: Lines, test: Callable[[str], object]) -> bool:
    """Whether four lines of five pass."""
    misses = len(lines) // 5
    return not any(not test(alike) and (misses := misses - 1) < 0 for _, alike in lines)


def _is_rank_column(name: str, lines: Lines) -> bool:
    """Whether the numbers in this column are those of alternating ranks: all from 0 on, each repeatedly."""
    part = _ROWS[name]["column"]
    found = [whole(_text(m, 1, line)) for line, alike in lines if part in line and (m := _match(name, alike))]
    downs = sum(1 for a, b in pairwise(found) if b < a)
    ranks = set(found)
    return len(ranks) >= 2 and ranks == set(range(len(ranks))) and downs >= 3 and min(map(found.count, ranks)) >= 2
