"""The options that choose incidents of a history: --since, --category and others, as conditions of `Store.rows`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Annotated, Any

import typer

from postmortem.errors import UsageError
from postmortem.fleet.history.rows import OUTCOMES, stamp
from postmortem.model.vocabulary import CATEGORIES
from postmortem.system.arguments import window

Query = dict[str, Any]  # keyword arguments of Store.rows
FILTERS = {
    "since": ("TIME", "Only later incidents (ISO 8601; UTC without a time zone)."),
    "until": ("TIME", "Only earlier incidents."),
    "category": ("NAME", "Only this category, such as host-oom."),
    "outcome": ("NAME", "Only this outcome, such as incident."),
    "host": ("NAME", "Only incidents with this host or GPU at fault."),
    "job": ("ID", "Only this job."),
    "fingerprint": ("HEX", "Only this fingerprint, or its first part."),
}


def filtered(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of FILTERS in place of its parameter `query`."""
    parameters: list[inspect.Parameter] = []
    for own in inspect.signature(command, eval_str=True).parameters.values():
        if own.name != "query":
            parameters.append(own.replace(kind=own.KEYWORD_ONLY))
            continue
        for name, (metavar, meaning) in FILTERS.items():
            kind = Annotated[str | None, typer.Option(metavar=metavar, help=meaning, rich_help_panel="Filter")]
            parameters.append(inspect.Parameter(name, own.KEYWORD_ONLY, default=None, annotation=kind))

    @wraps(command)
    def run(**given: Any) -> None:
        wanted = {name: given.pop(name) for name in FILTERS}
        found: Query = {name: value for name, value in wanted.items() if value is not None}
        known("--outcome", [wanted["outcome"]], OUTCOMES)
        known("--category", [wanted["category"]], CATEGORIES)
        found |= {name: stamp(at) for name, at in window(wanted["since"], wanted["until"]).items() if at is not None}
        if "-" not in found.get("fingerprint", "-"):
            found["cause"] = found.pop("fingerprint")
        command(query=found, **given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def known(option: str, given: Iterable[str | None], names: Sequence[str]) -> None:
    """Raise UsageError for a name that no incident can have."""
    if wrong := [name for name in given if name is not None and name not in names]:
        raise UsageError(f"{option} {wrong[0]} does not exist", f"there are {', '.join(names)}")
