"""The verdict, and the rows of `attempts`, which are short ones."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from postmortem.model import Confidence, Outcome, RunEnd
from postmortem.model.contract.words import ActionKind, Category, CauseId, Count, Likelihood, LineNumber, Seconds, Time


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


class Culprit(TypedDict):
    """The entities at fault; empty if there are none."""

    ranks: list[Count]
    """Global ranks, ascending"""
    hosts: list[str]
    """Their hosts, or the host at fault"""
    gpus: list[str]
    """PCI bus addresses"""
    pids: list[Count]
    """Process ids, at most 64"""
    code: str | None
    """The line of code where the failure shows, `file:line`"""


class Evidence(TypedDict):
    """A line of proof with its surroundings. Others point at it by its index."""

    source: str
    """`path` of its source"""
    line: LineNumber | None
    """Counts from 1; null in binary and JSON files"""
    end_line: LineNumber | None
    """Last line, where it has several"""
    text: str
    """The decisive line, secrets masked"""
    time: Time | None
    """On the job's one clock; null where it is not known to the minute"""
    uncertainty_s: Seconds | None
    """One standard deviation of `time`, in seconds; null where no clock places the line"""
    rank: Count | None
    """The rank that wrote the line, or the one rank it names"""
    host: str | None
    """Host of the line, or of its rank"""
    pattern: str | None
    """Id of the pattern that it shows"""
    attempt: Count | None
    """Where the logs number attempts"""
    match: NotRequired[str]
    """The part of `text` that shows it, where that is not the whole line"""
    context: list[str]
    """The lines around it, itself included; may be empty"""
    context_before: Count
    """Number of `context` lines before it"""


class Action(TypedDict):
    """A next step."""

    kind: ActionKind
    """For filters; `none` if only the text applies"""
    text: str
    """A sentence with the exact command or switch"""


class Missing(TypedDict):
    """Evidence that would decide between the readings that remain. Unreadable files come first;
    nothing that is here is asked for."""

    what: str
    """The evidence to get"""
    would_tell: str
    """The question it would decide"""
    how: str
    """The exact command or switch that yields it"""


class Collective(TypedDict):
    """The collective that ranks were stuck in, as watchdogs, flight recorders, fingerprints, stacks and
    tracebacks show it. Of a rank in none of `entered`, `missing` and `elsewhere` nothing is known. Numbers of
    two groups have nothing to do with each other. At most 1,024 ranks are listed."""

    op: str | None
    """`ALLREDUCE` of a watchdog, `all_reduce` of a recorder or a stack, `backward` for DDP's own"""
    seq: int | None
    """Its number in its process group"""
    group: str | None
    """The process group; null where no line names it"""
    size: Count | None
    """Number of the group's ranks"""
    numel_in: Count | None
    """Elements that each rank puts in"""
    numel_out: Count | None
    """Elements that each rank gets out"""
    dtype: str | None
    """Type of the elements, as the source of the line writes it"""
    timeout_s: Seconds | None
    """The timeout that was set, in seconds"""
    waited_s: Seconds | None
    """The longest that a rank waited, in seconds"""
    entered: list[Count]
    """Ranks that had entered it"""
    missing: list[Count]
    """Ranks known not to have, by a number or by the verdict"""
    elsewhere: dict[str, str]
    """Rank (a JSON key, so text) to the other collective that it was in"""
    completed: dict[str, int]
    """Rank to the last collective of this group that it had completed"""


class Verdict(TypedDict):
    """The failure, its cause, and the next steps."""

    outcome: Outcome
    """`recovered` failed and went well later; `undetermined` may be either"""
    end: RunEnd
    """Whether the logs show that the run finished, that it did not (they stop in its work, or it failed), or neither"""
    category: Category | None
    """Category of the failure, or of the wait in which the logs stop; null if unknown"""
    pattern: str | None
    """Id of the root's pattern; null where there is no root"""
    confidence: Confidence
    """How sure the verdict is, see `docs/confidence.md`"""
    headline: str
    """Culprit, failure, place and time in one sentence"""
    title: NotRequired[str]
    """The headline in at most 140 characters if possible, with date and zone, for a page and a chat"""
    rest: NotRequired[str]
    """What follows below the title: what the ranks did; absent where there is nothing"""
    culprit: Culprit
    """The entities at fault"""
    attempt: NotRequired[Count | None]
    """The attempt that it is about, where there were several; null if they have no numbers"""
    because: list[str]
    """The reasons, most telling first"""
    evidence: list[Evidence]
    """Lines of proof, strongest first, at most 40"""
    collective: NotRequired[Collective]
    """Where the verdict is a hang or a mismatch, or ranks timed out"""
    actions: list[Action]
    """Next steps, most urgent first; empty for a healthy run"""
    missing: list[Missing]
    """Evidence to get next; empty where the verdict is established"""


class Attempt(TypedDict):
    """One attempt of the job. Its number is torchrun's, otherwise counted: after a launcher's
    report of a death, or behind the scheduler's stop of the whole job, where the ranks begin anew."""

    number: Count | None
    """From 0; null if there was one without a number"""
    begin: Time | None
    """Null where the first line that is known of it is one from its middle"""
    end: Time | None
    """Time of its last line"""
    outcome: Outcome
    """Of this attempt alone"""
    ranks: list[Count]
    """Ranks to blame, at most 64"""
    hosts: list[str]
    """Hosts to blame, at most 64"""
    category: Category | None
    """Category of its failure"""
    pattern: str | None
    """Id of its root's pattern"""
    why: str | None
    """In one sentence; null where nothing failed"""
    ended: str | None
    """How the rank at fault ended, otherwise the job; null if unknown"""
