"""Which columns of a line that is printed again and again name the moment."""

from __future__ import annotations

from array import array

from claims import event
from postmortem.align import marks
from postmortem.model import Event


def printed(*rows: tuple[int, ...], rank: int = 0) -> Event:
    """What one rank printed: the line's shape is column 0, its numbers are the others."""
    flat = array("q", [n for row in rows for n in (7, *row)])
    times = array("d", range(len(rows)))
    fields = {"values": flat, "columns": len(rows[0]) + 1, "times": times, "lines": array("q", range(len(rows)))}
    return event(kind="sync", rank=rank, fields=fields)


def columns(*members: Event, form: str = "progress #") -> tuple[int, ...] | None:
    return marks._key_columns(form, members)


def test_a_number_that_counts_alike_on_all_ranks_names_the_moment() -> None:
    counted = [printed(*((n, 900 + 31 * n % 17 + rank) for n in range(20)), rank=rank) for rank in (0, 1)]
    assert columns(*counted) == (1,)


def test_numbers_that_repeat_need_a_second_one() -> None:
    epochs = [printed(*((n // 5, n % 5) for n in range(20)), rank=rank) for rank in (0, 1)]
    assert columns(*epochs) == (1, 2)


def test_numbers_that_each_rank_draws_itself_name_nothing() -> None:
    drawn = [printed(*((1000 * rank + 37 * n % 101,) for n in range(20)), rank=rank) for rank in (0, 1)]
    assert columns(*drawn) is None


def test_a_constant_counts_behind_a_word_for_a_counter() -> None:
    once = [printed((3,), rank=rank) for rank in (0, 1)]
    own = [printed((rank,), rank=rank) for rank in (0, 1)]
    assert columns(*once, form="memory #") is None
    for word in marks.WORDS:
        assert columns(*once, form=f"{word} #") == (0, 1)
        assert columns(*own, form=f"{word} #") == (0,)  # the rank's own number


def test_what_is_printed_once_is_named_by_its_shape() -> None:
    assert columns(printed((1,)), form="once init") == (0,)


def test_neighbours_agree_by_what_the_smaller_has_of_the_larger() -> None:
    assert marks._agreement([{1, 2}, {1, 2, 3, 4}]) == 1.0
    assert marks._agreement([{1, 2}, {2, 3}]) == 0.5
    assert marks._agreement([{1}, {1}, {2}, {2}]) == 1.0
    assert marks._agreement([set(), {1}]) == 0.0


def test_rising_numbers_may_step_back_once_in_a_while() -> None:
    def rising(*numbers: int) -> bool:
        return marks._rising([marks._table(printed(*((n,) for n in numbers)))], 1)

    assert rising(*range(20))
    assert rising(*range(11), 5, *range(11, 22))
    assert not rising(*[1, 2, 1, 2] * 5)
    assert not rising(1)
