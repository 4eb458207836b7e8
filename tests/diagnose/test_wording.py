"""What a line says, without what its logger put before it; and how well a moment is known."""

from __future__ import annotations

import pytest

from conftest import table
from postmortem.diagnose.wording import clock_time
from postmortem.formats.lineform import message


@pytest.mark.parametrize("line, expected", table("wording")["messages"])
def test_a_headline_quotes_no_stamp(line: str, expected: str) -> None:
    assert message(line) == expected


@pytest.mark.parametrize(("sigma", "expected"), table("wording")["moments"])
def test_a_moment_is_reported_as_well_as_it_is_known(sigma: float, expected: str) -> None:
    assert clock_time(1_795_208_328.7, sigma) == expected
    assert clock_time(None, sigma) == clock_time(91_198_839.0, sigma) == ""
