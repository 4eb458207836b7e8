"""Command line: arguments in, exit code out.

run(["analyze", "logs/", "--format", "json", "--output", "-"]) -> 0

Each command is a function of the same name in a module of this folder, a group a Typer `app`; the module is imported
when the command is used.
"""

from __future__ import annotations

import os
import re
import shlex
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from postmortem.cli import overview
from postmortem.errors import PostmortemError, ours, refusal
from postmortem.system import output, process

PLACES = {
    **dict.fromkeys(("explain", "schema", "completion"), "texts"),
    **dict.fromkeys(("run", "watch", "collect"), "jobs"),
    **dict.fromkeys(("attach", "diff", "mcp"), "fleet"),
}  # the others have a module of their name
CONTEXT = {"run": {"allow_interspersed_args": False}}  # its arguments are another program's
# Base class of all errors in arguments, which Typer does not export.
ArgumentError: type[Any] = typer.BadParameter.__mro__[1]


class LazyGroup(TyperGroup):
    """Command group that imports a command's module on first use."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands.update(dict.fromkeys(overview.COMMANDS))  # type: ignore[arg-type]  # None: not imported yet

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | TyperGroup | None:
        if cmd_name not in self.commands:
            return None
        if self.commands[cmd_name] is None:
            module = import_module(f"postmortem.cli.{PLACES.get(cmd_name, cmd_name)}")
            made = getattr(module, "app", None)  # of a group
            if made is None:
                made = typer.Typer(add_completion=False)
                made.command(context_settings=CONTEXT.get(cmd_name))(getattr(module, cmd_name))
            self.add_command(get_command(made), cmd_name)
        return self.commands[cmd_name]  # type: ignore[return-value]


app = typer.Typer(
    name="postmortem",
    cls=LazyGroup,
    help=overview.DESCRIPTION,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from postmortem.version import __version__

        output.data(f"postmortem {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Accept the options that come before the command."""


@cache
def root() -> Any:
    return get_command(app)


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. Print an error once, with the next step."""
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    if arguments[:1] != ["run"]:  # its arguments are another program's
        # the British spelling, without a place in the help, whose column is too narrow for both
        arguments = [re.sub("^--anonymise", "--anonymize", word) for word in arguments]
    try:
        with process.stoppable():
            code = root().main(arguments, prog_name="postmortem", standalone_mode=False) or 0
        return process.stop_code() if code == process.INTERRUPTED else int(code)
    except ArgumentError as error:
        if message := error.format_message():  # empty: the help was printed
            output.say(f"postmortem: {_one_line(' '.join(message.split()))}\n  {_one_line(_hint(error, arguments))}")
        return int(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return process.stop_code()
    except Exception as error:
        if os.environ.get("POSTMORTEM_DEBUG"):
            raise
        return _explain(error)


def _hint(error: Any, arguments: list[str]) -> str:
    """Return the next step after an error in the arguments."""
    named = [word for word in arguments[:1] if word in overview.COMMANDS]
    if not named and any(map(os.path.exists, arguments[:1])):  # Path.exists raises for a name that is too long
        return f"to read logs: postmortem analyze {shlex.join(arguments)}"
    return f"see {error.ctx.command_path if error.ctx else ' '.join(['postmortem', *named])} --help"


def _explain(error: Exception) -> int:
    """Print an error and its hint; return the exit code."""
    error = refusal(error) or error
    if isinstance(error, PostmortemError):
        output.say(f"postmortem: {_one_line(error.message)}")
        if error.hint:
            output.say(f"  {_one_line(error.hint)}")
        return error.exit_code
    output.say(f"postmortem: {_one_line(ours(error))}")
    output.say("  set POSTMORTEM_DEBUG=1 and run again for the traceback to report")
    return 1


def _one_line(text: str) -> str:
    """Return the text as one line without control characters: it may quote a log or a file name."""
    from postmortem.report.text import line

    return line(text)
