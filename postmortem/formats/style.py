"""The style of a file, learned from its first lines: the label that each of its lines has in front."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import NamedTuple

from postmortem.model.digits import whole, zeros
from postmortem.system import forms


class Style(NamedTuple):
    """The labels of one file."""

    srun: bool = False
    task: bool = False  # of srun's label: a launcher of several ranks, not a rank
    host: bool = False
    column: str = ""  # a key of COLUMNS
    margin: bool = False  # the whole file was pasted as a quotation
    label: str = ""  # a key of LABELS
    lead: str = ""  # a regex of the label of numbered writers: `[worker-3] `
    word: str = ""  # a regex of the word and number of the writer, near the begin of a line


MOST_RANKS = 512  # the largest rank with which a node begins
ENOUGH = 100  # lines that are searched for numbered writers
NEAR = 120  # characters of a line that are searched for its writer
_ROWS, _REGEXES = forms.rows("formats/envelopes"), forms.regexes("formats/envelopes")
SRUN, HOST, RANKED = (_REGEXES[name] for name in ("srun", "host", "ranked"))
COLUMNS, LABELS = ({name: _REGEXES[name] for name, row in _ROWS.items() if key in row} for key in ("column", "label"))
_LEADS = [name for name, row in _ROWS.items() if "lead" in row]
_WORDS = {name: row["least"] for name, row in _ROWS.items() if "least" in row}
ALL = 1000  # first lines
SHOWN = 1000  # characters of a line that show its style

Lines = Sequence[tuple[int, str]]  # each with its number, and with zeros for digits
Matches = Sequence[tuple[int, re.Match[str]]]  # each with the number of its line
Fits = Callable[[Sequence[str]], object]  # whether the digits of the lines agree
Candidate = tuple[Fits, Style]


def rank_in(label: str) -> int | None:
    """The rank that a label contains: `train-rank2`."""
    m = RANKED.search(label)
    return whole(m[1]) if m else None


def learn(lines: Iterable[str]) -> Style:
    """The style that the first lines of a file show."""
    plain = [line for line in lines if line.strip()][:ALL]
    candidates = _candidates(zeros("\n".join([line[:SHOWN] for line in plain])))
    return next((style for fits, style in candidates if fits(plain)), Style())


@lru_cache(maxsize=256)
def _candidates(alike: str) -> list[Candidate]:
    """The styles that lines with these digits, or others, may show: the first one fits that the digits agree with."""
    lines = [pair for pair in enumerate(alike.split("\n")) if not _match("head-node", pair[1])][:200]
    if len(lines) < 3:
        return []
    if all(line.startswith(">") for _, line in lines[:3]) and _mostly(lines, lambda line: line.startswith(">")):
        return [(lambda _: True, Style(margin=True))]
    found: list[Candidate] = []
    slurm = ("srun:", "slurmstepd", "*** ")  # lines between those of the tasks
    tasks = [(n, m) for n, line in lines if (m := _match("srun", line))]
    if tasks and _mostly(lines, lambda line: _match("srun", line) or line.startswith(slurm)):
        launchers = any(_REGEXES["of-launcher"].match(m.string, m.end()) for _, m in tasks)
        srun = Style(srun=True, task=launchers)
        found.append((lambda plain: len(set(_texts(tasks, 1, plain))) < len(lines), srun))
    host = bool(_mostly(lines, lambda line: (": " in line or " | " in line) and _match("host", line)))
    label = next((name for name in LABELS if _mostly(lines, partial(_match, name))), "")
    for name in COLUMNS:
        part = _ROWS[name]["column"]
        matches = [(n, m) for n, line in lines if part in line and (m := _match(name, line))]
        if len(matches) >= 6:  # which two ranks need to alternate
            found.append((partial(_are_ranks, matches), Style(host=host, column=name, label=label)))
    if not label:
        own = [pair for pair in lines if not _match("foreign", pair[1])][:ENOUGH]
        found += [(fits, Style(lead=lead)) for fits, lead in _leads(own)]
        found += [(fits, Style(host=host, word=word)) for fits, word in _words(own)]
    return [*found, (lambda _: True, Style(host=host, label=label))]


@lru_cache(maxsize=1 << 13)
def _match(name: str, alike: str) -> re.Match[str] | None:
    """The match of a form at the begin of a line; of a word near it. Which digits a line has makes no difference to
    these forms, so that one search serves the same lines of all ranks."""
    form = _REGEXES[name]
    return form.search(alike, 0, NEAR) if name in _WORDS else form.match(alike)


def _texts(matches: Matches, group: str | int, plain: Sequence[str]) -> list[str]:
    """The texts of a group, with the digits of the lines."""
    return [plain[n][m.start(group) : m.end(group)] for n, m in matches]


def _leads(lines: Lines) -> Iterator[tuple[Fits, str]]:
    """The regexes of a label, if its numbers are those of alternating writers."""
    for name in _LEADS:
        found = _of_half(name, lines)
        shapes = Counter((m["lead"], _masked(m["behind"])) for _, m in found)
        if not shapes:
            continue
        (lead, behind), count = shapes.most_common(1)[0]
        if count * 2 < len(lines) or (_REGEXES["tee-lead"].match(lead) and behind.startswith("\\]:")):
            continue
        own = [(n, m) for n, m in found if (m["lead"], _masked(m["behind"])) == (lead, behind)]
        before = _REGEXES[name].pattern.partition("(?P<lead>")[0]
        regex = rf"{before}(?P<who>{re.escape(lead)}\d{{1,5}}){behind}"
        labels = [(n, m) for n, line in lines if (m := _match(name, line))]
        yield partial(_are_labels, own, lead, count * 10 / len(lines), labels), regex


def _are_labels(own: Matches, lead: str, share: float, labels: Matches, plain: Sequence[str]) -> bool:
    certain = _REGEXES["writer-lead"].search(lead) or _introduced(labels, plain)
    return (certain or share >= 8) and _are_writers(_texts(own, "n", plain), 1 if certain else 2, lead)


def _introduced(labels: Matches, plain: Sequence[str]) -> bool:
    """Whether two writers state the number of their label as their rank: `[1] process group ready: rank 1 of 3`."""
    rests = zip(_texts(labels, "n", plain), (plain[n][m.end() :] for n, m in labels), strict=True)
    return len({n for n, rest in rests if re.search(rf"(?i)\brank[ =:]{{1,2}}{n}\b", rest)}) > 1


def _words(lines: Lines) -> Iterator[tuple[Fits, str]]:
    """Regexes of the word beside the numbers of alternating writers: `[round: 0] [replica: 2]`, `Engine[1] INFO`."""
    for name, least in _WORDS.items():
        pattern = _REGEXES[name].pattern
        found = [(m["word"].lower(), n, m) for n, m in _of_half(name, lines)]
        for word, count in Counter(word for word, *_ in found).most_common(3):
            if count * 2 >= len(lines) and count > 3:
                own = [(n, m) for other, n, m in found if other == word]
                any_word = r"\(\?P<word>\\b\(\?:[^)]*\)\)"
                regex = re.sub(any_word, f"(?P<word>{word})", pattern) if word else pattern
                yield partial(_are_words, own, least, word), regex


def _are_words(own: Matches, least: int, word: str, plain: Sequence[str]) -> bool:
    return _are_writers(_texts(own, "n", plain), least, word)


def _of_half(name: str, lines: Lines) -> Matches:
    found, misses = [], len(lines) // 2
    for n, line in lines:
        if m := _match(name, line):
            found.append((n, m))
        elif (misses := misses - 1) < 0:
            return []
    return found


@lru_cache(maxsize=1024)
def _masked(behind: str) -> str:
    """The text behind the number of a writer, as a regex: a pid and the size of the job are numbers too."""
    return re.sub(r"\d+", r"\\d{1,8}", re.escape(behind))


def _are_writers(texts: list[str], least: int, lead: str) -> bool:
    """Whether numbers are those of writers: consecutive, each at least `least` times, not sorted, not counted
    by a loop. The numbers of a second node begin where those of the first end."""
    numbers = list(map(whole, texts))
    seen = Counter(numbers)
    downs = any(b < a for a, b in pairwise(numbers))
    first = min(seen, default=0)
    placed = first == 0 or 2 <= first <= MOST_RANKS
    complete = 2 <= len(seen) == max(seen, default=0) - first + 1
    return placed and complete and min(seen.values()) >= least and downs and not _REGEXES["counted-lead"].search(lead)


def _mostly(lines: Lines, test: Callable[[str], object]) -> bool:
    """Whether four lines of five pass."""
    misses = len(lines) // 5
    return not any(not test(line) and (misses := misses - 1) < 0 for _, line in lines)


def _are_ranks(matches: Matches, plain: Sequence[str]) -> bool:
    """Whether the numbers in a column are those of alternating ranks: all from 0 on, each repeatedly."""
    found = list(map(whole, _texts(matches, 1, plain)))
    downs = sum(1 for a, b in pairwise(found) if b < a)
    ranks = set(found)
    return len(ranks) >= 2 and ranks == set(range(len(ranks))) and downs >= 3 and min(map(found.count, ranks)) >= 2
