"""`--format json --brief`: the verdict in at most 2 kB."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from postmortem.model import Confidence, Outcome
from postmortem.model.contract.words import Category, Count, Time

SCHEMA: Literal["postmortem/brief/1"] = "postmortem/brief/1"


class Blamed(TypedDict):
    """The document's `verdict.culprit`, without empty fields; `more` counts what long lists lost."""

    ranks: NotRequired[list[Count]]
    """Global ranks, ascending"""
    hosts: NotRequired[list[str]]
    """Their hosts, or the host at fault"""
    gpus: NotRequired[list[str]]
    """PCI bus addresses"""
    pids: NotRequired[list[Count]]
    """Process ids"""
    code: NotRequired[str]
    """The line of code where the failure shows, `file:line`"""


class Proof(TypedDict):
    """One line of proof; a field that nothing is known of is absent."""

    where: str
    """`path:line`; the path alone in binary and JSON files"""
    text: str
    """The line, shortened"""
    time: NotRequired[Time]
    """UTC"""
    rank: NotRequired[Count]
    """Global rank"""
    host: NotRequired[str]
    """Host of the rank, or of the file"""
    pattern: NotRequired[str]
    """Id of the pattern that matched"""


class Wanted(TypedDict):
    """Evidence that would decide between the readings that remain."""

    what: str
    """The evidence to get"""
    how: str
    """The command or switch that yields it"""


class More(TypedDict):
    """How many items of a list were left out to keep it short; a list that is whole is absent."""

    because: NotRequired[Count]
    """Of `because`"""
    evidence: NotRequired[Count]
    """Of `evidence`"""
    actions: NotRequired[Count]
    """Of `actions`"""
    missing: NotRequired[Count]
    """Of `missing`"""
    ranks: NotRequired[Count]
    """Of `culprit.ranks`"""
    hosts: NotRequired[Count]
    """Of `culprit.hosts`"""
    gpus: NotRequired[Count]
    """Of `culprit.gpus`"""
    pids: NotRequired[Count]
    """Of `culprit.pids`"""


class Brief(TypedDict):
    """The verdict for agents and chat. Texts are shortened, long lists cut; empty fields are absent."""

    schema: Literal["postmortem/brief/1"]
    """The version of this shape"""
    outcome: Outcome
    """As in the incident document"""
    category: Category | None
    """Category of the failure; null if unknown"""
    pattern: str | None
    """Id of the root's pattern; null where there is no root"""
    confidence: Confidence
    """How sure the verdict is"""
    job: NotRequired[str]
    """The document's `job.id`, else its `job.name`"""
    headline: str
    """Culprit, failure, place and time in one sentence"""
    culprit: NotRequired[Blamed]
    """Absent if there is no culprit"""
    attempt: NotRequired[Count]
    """The attempt that the verdict is about, where there were several"""
    collective: NotRequired[str]
    """The collective in which the ranks were stuck, in one sentence"""
    attempts: NotRequired[list[str]]
    """A sentence for each of the last attempts, where there were several"""
    because: NotRequired[list[str]]
    """At most three reasons, most telling first"""
    actions: NotRequired[list[str]]
    """At most three next steps, most urgent first"""
    evidence: NotRequired[list[Proof]]
    """The strongest line of proof"""
    missing: NotRequired[list[Wanted]]
    """Evidence to get next"""
    cause: NotRequired[str]
    """Where the verdict is a symptom: its first usual cause, the signs, and the check that decides"""
    incomplete: NotRequired[str]
    """Input that was not read, if any"""
    fingerprint: str | None
    """As in the incident document"""
    report: NotRequired[str]
    """Only in messages of `--notify`: address of the report, from `--report-url`"""
    history: NotRequired[str]
    """How often the same was seen before, where the verdict was filed: one sentence"""
    more: NotRequired[More]
    """Counts of omitted entries"""
