"""The command line as plain data, for what is written from it: completion, the reference, the man page.

read(app).commands[0]  ->  Command("analyze", "Read logs, …", (Parameter((), "PATH...", …), …))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import click

from postmortem.errors import PathMissing, UsageError


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


def read(declared: click.Command, name: str = "") -> Command:
    """A command and what is below it, in the order of their declaration."""
    inner = declared.commands if isinstance(declared, click.Group) else {}
    return Command(
        name,
        one_line(declared.help or ""),
        tuple(map(_one, declared.params)),
        tuple(read(command, name) for name, command in inner.items()),
    )


def walk(command: Command, *path: str) -> Iterator[tuple[tuple[str, ...], Command]]:
    """Every command with its path, the root first: (), ("analyze",), …, ("patterns", "list")."""
    yield path, command
    for inner in command.commands:
        yield from walk(inner, *path, inner.name)


def one_line(text: str) -> str:
    return " ".join(text.split())


def _one(declared: click.Parameter) -> Parameter:
    option = declared if isinstance(declared, click.Option) else None
    kind = declared.type
    choices = tuple(map(str, kind.choices)) if isinstance(kind, click.Choice) else ()
    flag = option is not None and option.is_flag
    shown = "" if flag or not isinstance(declared.default, str) else declared.default
    return Parameter(
        tuple(option.opts) if option else (),
        "" if flag else declared.metavar or "|".join(choices) or str(declared.name).upper(),
        one_line((declared.does if isinstance(declared, Argument) else option and option.help) or ""),
        choices,
        shown,
        _bounds(kind) if isinstance(kind, click.IntRange) else "",
        declared.required,
        declared.nargs == -1 or declared.multiple,
    )


def _bounds(kind: click.IntRange) -> str:
    return f"at least {kind.min}" if kind.max is None else f"{kind.min} to {kind.max}"


# ── how `cli.py` declares them ──────────────────────────────────────────────────────────────────────────────


class Argument(click.Argument):
    """An argument that says what it is, which click's own can only in its latest releases."""

    def __init__(self, *names: Any, does: str, **attrs: Any) -> None:
        super().__init__(*names, **attrs)
        self.does = does


class Described(click.Command):
    """A command whose help lists its arguments too."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        arguments = [(p.human_readable_name, p.does) for p in self.params if isinstance(p, Argument)]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        super().format_options(ctx, formatter)


def argument(*names: str, help: str, **attrs: Any) -> Callable[[Any], Any]:
    return click.argument(*names, cls=Argument, does=help, **attrs)


def flag(*names: str, help: str) -> Callable[[Any], Any]:
    return click.option(*names, is_flag=True, help=help)


def choice(kind: type[StrEnum]) -> click.Choice[str]:
    return click.Choice([member.value for member in kind])


pattern_folders = click.option(
    "--patterns",
    "folders",
    metavar="DIR",
    type=Path,
    multiple=True,
    help="A folder of your own patterns; repeatable.",
)


HISTORY = "POSTMORTEM_HISTORY"  # of the environment: where every analysis files its verdict
history = click.option(
    "--history",
    "where",
    metavar="FILE|URL",
    envvar=HISTORY,
    help=f"The history: a file, or postgresql://USER@HOST/DATABASE. Default: ${HISTORY}.",
)
anonymised = flag("--anonymise", help="Replace hosts, users, addresses and paths by pseudonyms.")
anonymise_map = click.option(
    "--anonymise-map", metavar="FILE", type=Path, help="Anonymize, and write the mapping to FILE."
)
quiet = flag("--quiet", "-q", help="No progress and no summary.")


class Group(click.Group):
    """Commands in the order of their declaration."""

    command_class = Described

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def folder(path: Path) -> Path:
    """A folder that an option names; it has to be there."""
    if not path.is_dir():
        raise PathMissing(f"{path} is not a folder", "name an existing folder")
    return path


def moment(text: str | None, flag: str) -> float | None:
    """Seconds since 1970 of what an option says; UTC where it names no zone."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        hint = f"write it like this: {flag} 2026-11-20T03:12:08Z"
        raise UsageError(f"{flag} {text} is not a time", hint) from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
