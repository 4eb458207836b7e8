"""`postmortem diff --format json`: what differs between two runs."""

from __future__ import annotations

from typing import Literal, TypedDict

from postmortem.model import Outcome
from postmortem.model.contract.words import Category, Count, Difference, LineNumber, Seconds, Time

SCHEMA: Literal["postmortem/diff/1"] = "postmortem/diff/1"


class Side(TypedDict):
    """One of the two."""

    path: str
    """As it was given"""
    logs: bool
    """Whether its logs were read; false of a document, which quotes but a few of their lines"""
    outcome: Outcome
    """As in the incident document"""
    category: Category | None
    """What it died of; null where nothing tells"""
    pattern: str | None
    """Id of the root's pattern; null where there is no root"""
    fingerprint: str | None
    """As in the incident document"""
    headline: str
    """Of its verdict"""
    world_size: Count | None
    """Number of ranks; null where nothing tells"""
    hosts: list[str]
    """By name"""
    step_s: Seconds | None
    """Seconds of a step, the median; null where no stamped lines tell"""


class Differs(TypedDict):
    """One thing that differs."""

    kind: Difference
    """For filters"""
    name: str
    """Of the version or the setting; otherwise what differs, in a word"""
    a: str | None
    """What the first has, as people say it; null where it has none"""
    b: str | None
    """What the second has"""
    matters: bool
    """Whether it tells more than that these are two runs"""
    text: str
    """One sentence"""


class OnlyIn(TypedDict):
    """A line that one of them has, and the other has none of its form."""

    only_in: Literal["a", "b"]
    """Who has it"""
    text: str
    """The line, secrets masked"""
    ranks: list[Count]
    """Who printed it, ascending; empty where nothing tells"""
    source: str
    """`path` of its source"""
    line: LineNumber | None
    """Counts from 1; null in binary and JSON files"""
    step: Count | None
    """The training step that was told last in front of it"""
    time: Time | None
    """On the job's one clock, of it or of the last line in front of it that has one; null where none has"""
    trouble: bool
    """Whether it tells of trouble"""


class Comparison(TypedDict):
    """What differs between two runs, the most telling first."""

    schema: Literal["postmortem/diff/1"]
    """The version of this shape"""
    differs: bool
    """Whether anything that differs matters"""
    headline: str
    """The most telling of it, in one sentence"""
    a: Side
    """The first"""
    b: Side
    """The second"""
    differences: list[Differs]
    """The most telling first, at most 100"""
    lines: list[OnlyIn]
    """The first lines that one has and the other lacks, trouble first, at most 12 of each"""
    uncompared: list[str]
    """What could not be compared, a sentence each"""
