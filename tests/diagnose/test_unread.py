"""Sentences about what was not read, and the jobs that a loss concerns."""

from __future__ import annotations

from typing import Any

from conftest import table
from postmortem.diagnose.unread import losses
from postmortem.model.vocabulary import WINDOW
from postmortem.say.missing import of_unread


def row(path: str = "a.log", reason: str = "gz ends early.", size: int = 0, **more: Any) -> dict[str, Any]:
    return {"path": path, "reason": reason, "bytes": size, "lost": True, **more}


def unread(*rows: Any, own: tuple[str, ...] = (), others: tuple[str, ...] = ()) -> Any:
    ledger: Any = {"skipped": list(rows), "bytes": 2000}
    return losses(ledger, own, others)


def test_a_loss_concerns_a_job_unless_its_file_is_of_another_job() -> None:
    assert unread() is None and unread(row(lost=False)) is None
    assert unread(row("x.tar!/a"), others=("x.tar!/b",)) is None
    assert unread(row("x.tar!/a"), own=("x.tar!/c",), others=("x.tar!/b",)).rows == (row("x.tar!/a"),)
    assert losses({}, (), ()) is None  # type: ignore[arg-type]


def test_the_extent_is_in_bytes_or_in_files() -> None:
    lead = "no failure in what was read, but "
    for rows, words in (
        ([row(size=1200), row("b", size=34)], f"{lead}1,234 bytes of 2,000 were not read"),
        ([row(), row()], f"{lead}a.log could not be read to the end"),
        ([row(), row("b")], f"{lead}2 files could not be read to the end"),
        (
            [row("the diagnosis", "an internal error in x.py:3")],
            f"{lead}an internal error lost a part of the diagnosis",
        ),
        ([row(), row(WINDOW, "no event since noon")], "no event since noon"),
    ):
        assert str(unread(*rows)) == words


def test_the_first_five_losses_are_listed_and_requested() -> None:
    found = unread(*(row(f"{n}.log") for n in range(7)))
    assert found.told() == [*(f"{n}.log: gz ends early." for n in range(5)), "2 more losses are in the ledger."]
    assert [item["what"] for item in of_unread(found)] == [f"{n}.log: gz ends early" for n in range(5)]
    assert unread(row()).told() == ["a.log: gz ends early."] and len(unread(*[row()] * 5).told()) == 5


def test_a_request_has_the_way_to_get_the_file() -> None:
    for reason, what, how in table("unread")["requests"]:
        (item,) = of_unread(unread(row("a b.log", reason)))
        assert (item["what"], item["how"]) == (what, how)
        assert item["would_tell"] == "whether the unread part contains a failure"
    assert of_unread(unread(row(reason="an internal error in x.py:3"))) == []
    (window,) = of_unread(unread(row(WINDOW, "no event since noon")))
    assert window["what"] == "events in the time window" and "--since and --until" in window["how"]
