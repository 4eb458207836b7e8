"""How a process ended, by its code or by the name of a signal."""

from __future__ import annotations

import pytest

from claims import event
from conftest import table
from postmortem.diagnose import endings


@pytest.mark.parametrize("code, kind, expected", table("endings")["codes"])
def test_a_code_is_the_end_of_a_process(code: int, kind: str, expected: str) -> None:
    end = endings.of(code)
    assert (end.kind, str(end)) == (kind, expected)


@pytest.mark.parametrize("code", [128, 131, 138, 140, 142, 200, 255])
def test_codes_that_programs_choose_themselves_are_no_signals(code: int) -> None:
    assert endings.of(code).kind == "own"
    assert endings.of(code).short == str(code)


def test_a_signal_without_a_name_of_its_own_is_a_stop() -> None:
    assert endings.of(-10).kind == "stop"
    assert endings.of(-40).kind == "stop"
    assert endings.of(-40).signal == ""


@pytest.mark.parametrize("named, short", table("endings")["signals"])
def test_a_line_may_name_the_signal_instead(named: str, short: str) -> None:
    line = event("task 3: …", signal=named)
    end = endings.reported(line)
    assert end is not None
    assert (end.short, end.stated_by) == (short, line)


def test_the_signal_that_a_line_names_goes_before_its_code() -> None:
    end = endings.reported(event(signal="SIGKILL", exitcode=1))
    assert end is not None
    assert end.kind == "kill"


@pytest.mark.parametrize("fields", [{}, {"signal": "Hurrah"}, {"signal": "2"}])
def test_text_without_an_end_is_none(fields: dict[str, str]) -> None:
    assert endings.reported(event(**fields)) is None


def test_a_code_in_digits_is_a_code() -> None:
    end = endings.reported(event(exitcode=-9))
    assert end is not None
    assert (end.kind, end.code) == ("kill", -9)
