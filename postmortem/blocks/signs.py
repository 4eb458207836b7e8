"""Signs in an ordinary line: work that advances, a result, an answer, a complaint, a completion.

    iter 30/1000  loss 0.52                      a count, `it` of 1000 is 30; work where it grows
    INFO: 10.0.0.8:44 - "POST /v1/completions HTTP/1.1" 200 OK          an answer
    mAP@[.5:.95]: 0.1149                         a result, where nothing comes after it
    Training finished.                           a completion
    done                                         a completion too, if it is the last line

The regexes are in signs.yaml. A redrawn progress bar and the summary of wandb are no signs of work: both come
after a fatal traceback. `Flags` finds the lines of a sample that may have a sign in one pass: the slow regexes run
on these only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache, reduce
from itertools import islice, pairwise
from operator import or_

from postmortem import scan
from postmortem.blocks import counters, identities
from postmortem.formats.excerpt import Line
from postmortem.formats.sieve import Sieve
from postmortem.library import Signature
from postmortem.model.digits import KEPT, LONG, key_of, whole
from postmortem.scan import NUMBER, SHIFT
from postmortem.system import forms

_ROWS, _REGEXES = forms.rows("blocks/signs"), forms.regexes("blocks/signs")
SIEVE = Sieve({name: row["regex"] for name, row in _ROWS.items() if "gate" not in row and "ungated" not in row})
LOSS = SIEVE["loss"]
_ERROR = SIEVE.bits("level", "raised")
OF = "of "  # a count with its total
MANY = 24  # copies of one line: more than the ranks of most hosts print
ENOUGH = 3  # lines of one kind in which a number grows


class Look:
    """What lines that differ in digits only have in common: `body` is one of them, with zeros. A regex that is
    searched here has no digit but `\\d` and `0-9` (see test_forms.py), or may match too often."""

    def __init__(self, body: str) -> None:
        self.body = body
        self.may = SIEVE.may(body)  # the forms that may match

    @cached_property
    def foreign(self) -> bool:
        """Whether a scheduler or Ray wrote the line, not a rank."""
        return bool(SIEVE["keeper"].search(self.body))

    @cached_property
    def setup(self) -> bool:
        """Whether an installer or a download, which a second run may not repeat, wrote the line, or it is a warning."""
        return bool(_REGEXES["setup"].match(self.body.strip()))

    @cached_property
    def no_news(self) -> bool:
        """Whether the line is a scheduler's or a summary."""
        return self.foreign or is_summary(self.body)

    @cached_property
    def shape(self) -> str:
        """A line without its numbers, to find copies of it."""
        return _REGEXES["digits"].sub("N", self.body.strip())[:120]

    @cached_property
    def plan(self) -> bool:
        return bool(SIEVE["planned"].search(self.body)) and not LOSS.search(self.body)

    @cached_property
    def step(self) -> slice | None:
        """The place of the number of the step."""
        if (m := SIEVE["epoch-step"].search(self.body)) and not SIEVE["preparing"].match(self.body):
            found = slice(*m.span("step" if m["step"] else "bar"))
        elif m := SIEVE["step"].search(self.body):
            found = slice(*m.span("step"))
        else:
            return None
        return None if self.plan or self.no_news else found

    @cached_property
    def no_work(self) -> bool:
        """Whether the numbers of a line are those of attempts or preparations."""
        return bool(self.no_news or SIEVE["preparing"].match(self.body) or SIEVE["trying"].search(self.body))

    @cached_property
    def counts(self) -> list[tuple[str, slice, slice]]:
        """The names of the counts, or their places, and the places of the counts; of `30/1000` that of the total."""
        body = self.body
        found = [(OF, slice(*m.span("all")), slice(*m.span("n"))) for m in _REGEXES["of-all"].finditer(body, 0, 400)]
        if m := SIEVE["epoch"].search(body):
            found.append(("epoch", slice(0), slice(*m.span("n"))))
        if m := SIEVE["so-far"].search(body):
            found.append(("", slice(*m.span("name")), slice(*m.span("n"))))
        if (m := SIEVE["step"].search(body)) and not self.plan:
            found.append((m["word"].lower(), slice(0), slice(*m.span("step"))))
        return found

    @cached_property
    def code(self) -> bool:
        """Whether the line may be quoted code."""
        return bool(_REGEXES["code"].match(self.body))

    @cached_property
    def error(self) -> bool:
        """Whether the line may report an error."""
        return bool(self.may & _ERROR)

    @cached_property
    def complains(self) -> bool:
        return bool(SIEVE["complaint"].search(self.body))

    @cached_property
    def no_result(self) -> bool:
        body = self.body
        return bool(is_summary(body) or SIEVE["no-result"].search(body) or _REGEXES["setting"].match(body))

    @cached_property
    def result(self) -> bool:
        """Whether the line has a result other than a metric, of which some have a digit in their name."""
        found = any(SIEVE[name].search(self.body) for name in ("pairs", "saved"))
        return found or any(_REGEXES[name].match(self.body) for name in ("row", "cell"))

    @cached_property
    def counter(self) -> tuple[str, list[slice]] | None:
        return counters.form_of(self.body)

    @cached_property
    def ends(self) -> bool:
        """Whether the line may report the end of a rank."""
        return identities.may_end(self.body)


_look, _look_long = (lru_cache(n)(lambda key: Look(key.decode("utf-8", "surrogatepass"))) for n in (KEPT, 16))


def look(body: str) -> Look:
    """Return what a line has in common with those of other digits."""
    key = key_of(body)
    return _look(key) if len(key) < LONG else _look_long(key)


# ── who wrote a line ────────────────────────────────────────────────────────────────────────────────────────


def is_foreign(body: str) -> bool:
    """Whether a scheduler or Ray wrote the line, not a rank."""
    return look(body).foreign


def is_summary(body: str) -> bool:
    """Whether an exit handler wrote the line: wandb prints a summary however the process ended."""
    return bool(_REGEXES["closing"].match(body))


def is_of_library(text: str) -> bool:
    """Whether torch, NCCL or Gloo wrote the line."""
    return bool(_REGEXES["of-library"].search(text))


def is_ordinary(line: Line) -> bool:
    """Whether the program itself wrote the line, and it is not an error."""
    body = line.envelope.body
    return not (_REGEXES["of-traceback"].match(body) or is_of_library(line.text) or troubled(body))


# ── work ────────────────────────────────────────────────────────────────────────────────────────────────────


def step(body: str) -> int | None:
    """The number of the step in a line."""
    shared = look(body)
    return None if shared.step is None or _is_code(shared, body) else whole(body[shared.step])


def _is_code(shared: Look, body: str) -> bool:
    return shared.code and bool(_REGEXES["code"].match(body))


def _is_no_work(body: str) -> bool:
    """Whether the numbers of a line are those of attempts, preparations or errors, or the line is quoted code."""
    shared = look(body)
    return shared.no_work or _is_code(shared, body) or has_error(body)


def counts(body: str) -> list[tuple[str, int]]:
    """The counts in a line by name: `("iter", 30)`, `("of 1000", 30)`. Attempts and failures are no work."""
    places = look(body).counts
    if not places or _is_no_work(body):
        return []
    found = []
    for name, named, at in places:
        count = whole(body[at])
        if name != OF:
            found.append((name or body[named], count))
        elif 1 < (total := whole(body[named])) >= count:
            found.append((f"of {total}", count))
    return found


def _kind(body: str) -> str:
    return " ".join(_REGEXES["any-number"].sub("N", body[:200]).split())


def series(bodies: Sequence[str]) -> list[int]:
    """The last lines of a kind with a number that grows in each: `| timesteps | 4096 |`, `[00012] tr 0.31`."""
    if len(bodies) < ENOUGH:
        return []
    kinds: dict[str, list[tuple[int, list[int]]]] = {}
    for i, body in enumerate(bodies):
        if not _is_no_work(body):
            kinds.setdefault(_kind(body), []).append((i, _numbers(body[:200])))
    found = [rows[-ENOUGH:] for rows in kinds.values() if len(rows) >= ENOUGH and _one_grows(rows)]
    return [i for i, _ in max(found, key=lambda rows: rows[-1][0], default=[])]


def rounds(bodies: Sequence[str]) -> int | None:
    """The last line of a loop that repeats a few lines of several words, none of them an error or a library's: NCCL
    prints the same lines for each channel that it sets up."""
    if len(bodies) < 2 * ENOUGH:
        return None
    kinds = list(map(_kind, bodies))
    often = {
        kind
        for kind, n in Counter(kinds).items()
        if n >= ENOUGH and " " in kind and sum(map(str.isalpha, kind)) > ENOUGH
    }
    turns = [i for i, kind in enumerate(kinds) if kind in often]
    if len(turns) * 5 < len(bodies) * 3 or len(turns) < 2 * ENOUGH:
        return None
    runs = 1 + sum(kinds[a] != kinds[b] for a, b in pairwise(turns))
    if runs < max(ENOUGH, 2 * len(often)) and len(turns) < MANY * len(often):
        return None  # each rank printed the lines of a start once
    if any(
        look(body).no_news
        or _is_code(look(body), body)
        or SIEVE["trying"].search(body)
        or troubled(body)
        or is_of_library(body)
        for body in bodies
    ):
        return None
    return turns[-1]


def _numbers(body: str) -> list[int]:
    found = _REGEXES["number"].finditer(body)
    return [whole(m[0]) for m in found if not _REGEXES["owner"].search(body, max(0, m.start() - 30), m.start())]


def _one_grows(rows: Sequence[tuple[int, list[int]]]) -> bool:
    """Whether a column of numbers is larger in each row."""
    columns = zip(*(numbers for _, numbers in rows), strict=False)
    return any(all(a < b for a, b in pairwise(column)) for column in columns)


def result(body: str) -> bool:
    """Whether a line has a result: a score, a row of a table of scores, or the path of an output."""
    shared = look(body)
    return not shared.no_result and (shared.result or SIEVE["metric"].search(body) is not None)


# ── complaints ──────────────────────────────────────────────────────────────────────────────────────────────


def complains(body: str) -> bool:
    """Whether a line may be a complaint: compared between ranks where no pattern matches."""
    return look(body).complains and not SIEVE["benign"].search(body)


def has_error(text: str) -> bool:
    """Whether a line reports an error, by its level or its words, that the program did not dismiss."""
    if not look(text).error:
        return False
    return bool(SIEVE["level"].search(text) or SIEVE["raised"].search(text)) and not SIEVE["shrugged"].search(text)


def troubled(body: str) -> bool:
    """Whether a line is an error or a complaint."""
    return has_error(body) or complains(body)


# ── completions ────────────────────────────────────────────────────────────────────────────────────────────────


def completion(body: str) -> bool:
    """Whether a line ends the work."""
    return last_word(body) or (_ends_work("completion", body) and not is_foreign(body))


def last_word(body: str) -> bool:
    """Whether it reports a completion that a failed script does not print."""
    if SIEVE["completion-of-program"].search(body):
        return True
    return _ends_work("last-words", body) and not is_foreign(body)


def _ends_work(name: str, body: str) -> bool:
    return bool(SIEVE[name].search(body)) and not _REGEXES["not-completion"].search(_REGEXES["no-error"].sub("", body))


# ── the lines that may have a sign ──────────────────────────────────────────────────────────────────────────

STEP, END, NOTICE, MILESTONE, FACTS, COUNT, ANSWER, JOB = (1 << n for n in range(8))
ALL = STEP | END | NOTICE | MILESTONE | FACTS | COUNT | ANSWER | JOB
PICKED = (
    (FACTS, 3, 0),
    (JOB, 1, 1),
    (NOTICE, 1, 1),
    (END, 0, 2),
    (MILESTONE, 0, 1),
)  # of each kind the first and last lines
_NAMES = {
    "step": STEP,
    "end": END,
    "notice": NOTICE,
    "milestone": MILESTONE,
    "facts": FACTS,
    "count": COUNT,
    "answer": ANSWER,
    "job": JOB,
    "all": ALL,  # JSON: the gates see the raw line
    "all-but-facts": ALL ^ FACTS,  # the dict of a Trainer
}
_GATES = [(_NAMES[row["gate"]], row["regex"]) for row in _ROWS.values() if "gate" in row]


class Flags:
    """The flags of the lines of a sample, without the flags `left_out`."""

    def __init__(self, data: bytes, left_out: int = 0) -> None:
        self.data = data
        self.places = _places(data, left_out)

    def of(self, start: int, end: int) -> int:
        """The flags of the line data[start:end]."""
        found = 0
        for place in self.places[bisect_left(self.places, start << SHIFT) : bisect_left(self.places, end + 1 << SHIFT)]:
            found |= place & NUMBER
        return found

    def picked(self) -> set[int]:
        """The offsets of the first and the last lines of each kind."""
        found: set[int] = set()
        seen = reduce(or_, self.places, 0)
        for mark, first, last in PICKED:
            if seen & mark:
                found.update(self._starts((place >> SHIFT for place in self.places if place & mark), first))
                found.update(self._starts((place >> SHIFT for place in reversed(self.places) if place & mark), last))
        return found

    def _starts(self, places: Iterable[int], most: int) -> dict[int, None]:
        """The offsets of the lines of some places, each once."""
        found: dict[int, None] = {}
        for place in islice(places, 64 if most else 0):
            found[self.data.rfind(b"\n", 0, place) + 1] = None
            if len(found) == most:
                break
        return found


def _places(data: bytes, left_out: int) -> list[int]:
    """`offset << SHIFT | mark` in order, with the offset of a byte of the line."""
    if b"\x1b" in data:  # colors may hide a sign
        return [at << SHIFT | ALL for at in _starts(data)]
    gates = [(mark, gate) for mark, gate in _GATES if mark & ~left_out]
    engine = scan.own_engine((__name__, left_out), lambda: [Signature(f":{n}", g) for n, (_, g) in enumerate(gates)])
    place = [mark - n - (1 << SHIFT) for n, (mark, _) in enumerate(gates)]  # of the line's end -> of a byte, marked
    return [key + place[key & NUMBER] for key in engine.find(data)]


def _starts(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        yield at
        at = data.find(b"\n", at) + 1 or len(data)
