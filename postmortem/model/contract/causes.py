"""The rows of `causes`: the usual causes of a verdict that is a symptom."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from postmortem.model.contract.words import CauseId, Likelihood, LineNumber


class Sign(TypedDict):
    """A fact of these logs that makes a usual cause likelier or less likely."""

    fact: str
    """Its name, such as `affected`, `phase`; `line` and `place` are forms of a line and of a frame"""
    value: str | int | float | bool
    """Its value, such as `one`, `steps`"""
    text: str
    """Both in words"""
    source: str | None
    """`path` of the source whose line shows it; null where no line does, such as for what is absent"""
    line: LineNumber | None
    """Its line"""


# `for` is a word of the language: no class can have a field of this name
_For = TypedDict("_For", {"for": Annotated[list[Sign], ("description", "Evidence for it, at most 3")]})


class Cause(_For):
    """One usual cause of the verdict, with the check that decides."""

    id: CauseId
    """`postmortem explain` describes it"""
    title: str
    """The cause, in a few words"""
    likelihood: Likelihood
    """By the signs in these logs; `unlikely but costly` is shown because to miss it costs much"""
    against: list[Sign]
    """Evidence against it, at most 3"""
    check: str
    """The command that decides, for this job; or the place to look at. A value that the logs lack is in capitals"""
    command: bool
    """Whether `check` is a command"""
    expect: str
    """What the check shows if this is the cause"""
    fix: str
    """The remedy, if it is"""
    replay: NotRequired[str]
    """Name of the scenario of `postmortem replay` that re-creates it in miniature; absent where none does"""
