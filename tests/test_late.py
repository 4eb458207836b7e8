"""A regex that is compiled when it is first asked answers as one that was compiled at once."""

from __future__ import annotations

import copy
import pickle
import re
import threading

import pytest

from postmortem.formats import times
from postmortem.system import lazy as late

SOURCE = r"(?P<name>step) (?P<n>\d+)"
TEXT = "step 7, Step 8"


@pytest.mark.parametrize("flags", [0, re.IGNORECASE])
def test_it_answers_as_the_real_one(flags: int) -> None:
    real, ours = re.compile(SOURCE, flags), late.regex(SOURCE, flags)
    for name in ("search", "match", "fullmatch"):
        a, b = getattr(real, name)(TEXT), getattr(late.regex(SOURCE, flags), name)(TEXT)
        assert (a and a.groupdict()) == (b and b.groupdict())
    assert ours.findall(TEXT) == real.findall(TEXT) and ours.split(TEXT) == real.split(TEXT)
    assert ours.sub("x", TEXT) == real.sub("x", TEXT)
    assert (ours.pattern, ours.flags, ours.groupindex) == (real.pattern, real.flags, real.groupindex)
    assert late.regex(rb"\d+").findall(b"1 22") == [b"1", b"22"]


def test_nothing_is_compiled_before_it_is_asked() -> None:
    broken = late.regex("(")
    assert broken.pattern == "("
    with pytest.raises(re.error):
        broken.search("x")


def test_what_it_lacks_it_does_not_have() -> None:
    """Copying asks an empty instance for methods of its own: an answer to all would never end."""
    with pytest.raises(AttributeError):
        late.regex(SOURCE).find  # type: ignore[attr-defined] # noqa: B018
    assert copy.copy(late.regex(SOURCE)).search(TEXT)
    assert pickle.loads(pickle.dumps(late.regex(SOURCE))).search(TEXT)


def test_two_threads_may_ask_first() -> None:
    ours, found = late.regex(SOURCE), []
    threads = [threading.Thread(target=lambda: found.append(ours.search(TEXT) is not None)) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == [True] * 8


def test_a_match_knows_the_real_one() -> None:
    """`m.re is FORM` is never true of a late one. The stamps of c10's logger, whose nine digits say nothing, are
    told by it: their form is compiled at once."""
    ours = late.regex(SOURCE)
    found = ours.search(TEXT)
    assert found is not None and found.re is not ours
    glog, plain = times.find("W1120 21:05:00.130980890 x"), times.find("2026-11-20 21:05:00.130980890 x")
    assert glog and plain and glog.sigma != plain.sigma
