"""The command line as plain data, for what is written from it: completion, the reference, the man page.

read(app).commands[0]  ->  Command("analyze", "Read logs, …", (Parameter((), "PATH...", …), …))

It reads the declarations that typer itself reads, not typer's objects: those change from release to release.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, get_args, get_type_hints

from typer import Typer


@dataclass(frozen=True, slots=True)
class Parameter:
    """An option, or an argument where it has no names."""

    names: tuple[str, ...]
    metavar: str  # of its value; empty for a flag
    help: str
    choices: tuple[str, ...] = ()
    default: str = ""
    bounds: str = ""  # of a number: "1 to 64"
    required: bool = False
    repeatable: bool = False

    @property
    def takes(self) -> frozenset[str]:
        """The kinds of value it takes, by the words of its metavar: {"SCENARIO", "REPORT"}."""
        return frozenset(re.findall(r"[A-Z]+", self.metavar))


HELP = Parameter(("--help",), "", "Show the arguments and options.")  # of every command; nobody declares it


@dataclass(frozen=True, slots=True)
class Command:
    """One command, or a group of them."""

    name: str
    help: str
    parameters: tuple[Parameter, ...] = ()
    commands: tuple[Command, ...] = ()

    @property
    def options(self) -> tuple[Parameter, ...]:
        return (*(p for p in self.parameters if p.names), HELP)

    @property
    def arguments(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if not p.names)


def read(app: Typer, name: str = "", does: str = "") -> Command:
    """A typer app and what is below it, in the order of their declaration."""
    single = [
        Command(
            c.name or str(c.callback.__name__), one_line(inspect.getdoc(c.callback) or ""), _all(c.callback)
        )
        for c in app.registered_commands
        if c.callback
    ]
    groups = [
        read(g.typer_instance, g.name or "", str(g.typer_instance.info.help))
        for g in app.registered_groups
        if g.typer_instance
    ]
    return Command(name, one_line(does), commands=(*single, *groups))


def walk(command: Command, *path: str) -> Iterator[tuple[tuple[str, ...], Command]]:
    """Every command with its path, the root first: (), ("analyze",), …, ("patterns", "list")."""
    yield path, command
    for inner in command.commands:
        yield from walk(inner, *path, inner.name)


def one_line(text: str) -> str:
    return " ".join(text.split())


def _all(callback: Callable[..., Any]) -> tuple[Parameter, ...]:
    kinds = get_type_hints(callback, include_extras=True)
    return tuple(_one(p, kinds[p.name]) for p in inspect.signature(callback).parameters.values())


def _one(declared: inspect.Parameter, kind: Any) -> Parameter:
    (info,) = kind.__metadata__
    value, *_ = get_args(kind)
    inner = _inner(value)
    choices = tuple(str(c.value) for c in inner) if issubclass(inner, Enum) else ()
    # typer keeps the first name of an option in `default` until it makes its own objects
    names = tuple(n for n in (info.default, *(info.param_decls or ())) if str(n).startswith("-"))
    option = type(info).__name__ == "OptionInfo"
    if option and not names:
        names = (f"--{declared.name.replace('_', '-')}",)
    flag = option and inner is bool
    required = declared.default is inspect.Parameter.empty
    low, high = info.min, info.max
    bounds = f"{low} to {high}" if high is not None else f"at least {low}" if low is not None else ""
    shown = "" if required or flag or declared.default in (None, "") else str(declared.default)
    return Parameter(
        names if option else (),
        "" if flag else info.metavar or "|".join(choices) or declared.name.upper(),
        one_line(info.help or ""),
        choices,
        shown,
        bounds,
        required,
        "list[" in str(value),
    )


def _inner(kind: Any) -> type:
    """str of list[str] | None."""
    while parts := [part for part in get_args(kind) if part is not type(None)]:
        kind = parts[0]
    return kind if isinstance(kind, type) else str
