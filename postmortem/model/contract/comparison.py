"""`postmortem diff --format json`: the differences of two runs."""

from __future__ import annotations

from typing import Literal, TypedDict

from postmortem.model import Outcome
from postmortem.model.contract.words import Category, Count, Difference, LineNumber, Seconds, Time

SCHEMA: Literal["postmortem/diff/1"] = "postmortem/diff/1"


class Side(TypedDict):
    """One of the two runs."""

    path: str
    """As it was given"""
    logs: bool
    """Whether its logs were read; false for a document, which quotes only a few of their lines"""
    outcome: Outcome
    """As in the incident document"""
    category: Category | None
    """Kind of failure; null if unknown"""
    pattern: str | None
    """Id of the root's pattern; null without a root"""
    fingerprint: str | None
    """As in the incident document"""
    headline: str
    """Of its verdict"""
    world_size: Count | None
    """Number of ranks; null if unknown"""
    hosts: list[str]
    """By name"""
    step_s: Seconds | None
    """Median seconds of a step; null without timestamped steps"""


class Differs(TypedDict):
    """One difference."""

    kind: Difference
    """For filters"""
    name: str
    """Of the version or the setting; otherwise of the difference"""
    a: str | None
    """Value of the first, for people; null without one"""
    b: str | None
    """Value of the second"""
    matters: bool
    """Whether it is more than the usual difference of two runs"""
    text: str
    """One sentence"""


class OnlyIn(TypedDict):
    """A line of one run whose form does not occur in the other."""

    only_in: Literal["a", "b"]
    """The run that has it"""
    text: str
    """The line, secrets masked"""
    ranks: list[Count]
    """Ranks that printed it, ascending; empty if unknown"""
    source: str
    """`path` of its source"""
    line: LineNumber | None
    """Counts from 1; null in binary and JSON files"""
    step: Count | None
    """The last training step printed before it"""
    time: Time | None
    """Time on the job's one clock, of it or of the last line before it that has one; null without any"""
    trouble: bool
    """Whether it reports trouble"""


class Comparison(TypedDict):
    """The differences of two runs, the most significant first."""

    schema: Literal["postmortem/diff/1"]
    """The version of this shape"""
    differs: bool
    """Whether any difference matters"""
    headline: str
    """The most significant differences in one sentence"""
    a: Side
    """The first"""
    b: Side
    """The second"""
    differences: list[Differs]
    """The most significant first, at most 100"""
    lines: list[OnlyIn]
    """The first lines that only one run has, trouble first, at most 12 of each"""
    uncompared: list[str]
    """Parts that could not be compared, a sentence each"""
