"""A lazy regex answers like one that was compiled at once."""

from __future__ import annotations

import copy
import pickle
import re
import threading

import pytest

from postmortem.formats import times
from postmortem.system import lazy

SOURCE = r"(?P<name>step) (?P<n>\d+)"
TEXT = "step 7, Step 8"


@pytest.mark.parametrize("flags", [0, re.IGNORECASE])
def test_it_answers_like_the_real_one(flags: int) -> None:
    real, ours = re.compile(SOURCE, flags), lazy.regex(SOURCE, flags)
    for name in ("search", "match", "fullmatch"):
        a, b = getattr(real, name)(TEXT), getattr(lazy.regex(SOURCE, flags), name)(TEXT)
        assert (a and a.groupdict()) == (b and b.groupdict())
    assert ours.findall(TEXT) == real.findall(TEXT) and ours.split(TEXT) == real.split(TEXT)
    assert (ours.pattern, ours.flags, ours.groupindex) == (real.pattern, real.flags, real.groupindex)
    assert lazy.regex(rb"\d+").findall(b"1 22") == [b"1", b"22"]


def test_it_is_compiled_at_the_first_use() -> None:
    broken = lazy.regex("(")
    assert broken.pattern == "("
    with pytest.raises(re.error):
        broken.search("x")


def test_it_can_be_copied_and_used_by_threads() -> None:
    """Copying looks up methods of an empty instance: an answer to all would never end."""
    with pytest.raises(AttributeError):
        lazy.regex(SOURCE).find  # type: ignore[attr-defined] # noqa: B018
    assert copy.copy(lazy.regex(SOURCE)).search(TEXT)
    assert pickle.loads(pickle.dumps(lazy.regex(SOURCE))).search(TEXT)
    ours, found = lazy.regex(SOURCE), []
    threads = [threading.Thread(target=lambda: found.append(ours.search(TEXT) is not None)) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == [True] * 8


def test_the_stamps_of_two_loggers_are_distinguished() -> None:
    """`m.re is FORM` is never true of a lazy regex, so the form of c10's logger is compiled at once."""
    glog, plain = times.find("W1120 21:05:00.130980890 x"), times.find("2026-11-20 21:05:00.130980890 x")
    assert glog and plain and glog.sigma != plain.sigma
