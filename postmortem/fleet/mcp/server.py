"""The tools of `tools.yaml` behind the official SDK: on stdin and stdout, one process per client.

A call that reads logs waits for a child process, any other works in a thread, so that the server can answer
meanwhile; a cancelled call ends both. Everything ends when the client closes the pipe or is gone.
"""

from __future__ import annotations

import json
import secrets
import signal
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import yaml
from anyio import to_thread
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from postmortem.errors import PostmortemError, UsageError, ours, refusal
from postmortem.fleet.mcp import tools
from postmortem.fleet.mcp.cases import ANALYZE, DIFF, Cases
from postmortem.fleet.mcp.roots import Roots
from postmortem.fleet.mcp.tools import FUNCTIONS, Scope
from postmortem.report import json as plain
from postmortem.report import text
from postmortem.system import resources
from postmortem.version import __version__

READS = types.ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
MARK = {"type": "string", "pattern": "^quoted-", "description": "The same word at both ends: quoted data in between."}
Context = ServerRequestContext[Any]


def serve(roots: Sequence[Path], patterns: Sequence[Path], history: str | None = None) -> None:
    """Answer until the client leaves."""
    signal.signal(signal.SIGINT, _interrupt)  # asyncio's own handler waits for the thread that reads stdin
    anyio.run(_serve, Scope(Roots(roots), tuple(patterns), history))


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _failed(loop: AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report an error of the loop, except those of a shutdown by a signal."""
    if "asyncio.run() shutdown" not in context["message"]:
        loop.default_exception_handler(context)


async def _serve(scope: Scope) -> None:
    get_running_loop().set_exception_handler(_failed)
    server = made(scope)
    async with stdio_server() as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())


def made(scope: Scope) -> Server[Any]:
    """A server for the folders of `scope`, not yet connected."""
    calls = Calls(scope)
    return Server(
        "postmortem",
        version=__version__,
        instructions=_file()["instructions"].format(roots=", ".join(text.line(f, 300) for f in scope.roots.folders)),
        on_list_tools=calls.list,
        on_call_tool=calls.call,
    )


class Calls:
    """Handlers of the requests of a client."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.cases = Cases(scope.roots, scope.patterns)
        self.key = secrets.token_bytes(32)

    async def list(self, _context: Context, _page: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_declared(name) for name in _table()])

    async def call(self, context: Context, asked: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            if asked.name not in FUNCTIONS:
                raise UsageError(f"there is no tool {asked.name}", f"the tools are {', '.join(FUNCTIONS)}")
            answer = await self._answer(context, asked.name, _checked(asked.name, asked.arguments or {}))
        except Exception as error:
            return _refused(refusal(error) or error)
        content = types.TextContent(type="text", text=plain.dump(answer, order=False))
        return types.CallToolResult(content=[content], structured_content=answer)

    async def _answer(self, context: Context, name: str, asked: dict[str, Any]) -> tools.Answer:
        tool, find, progress = _table()[name], self.scope.roots.find, partial(_report, context)
        reads = [(ANALYZE, tuple(dict.fromkeys(map(find, asked[logs])))) for logs in tool.get("logs", ())]
        if runs := tool.get("runs"):
            reads.append((DIFF, tuple(find(asked[run]) for run in runs)))
        cases = [await self.cases.read(paths, tool.get("refresh", False), progress, work) for work, paths in reads]
        ended = False
        scope = replace(self.scope, stopped=lambda: ended)
        try:
            work = partial(FUNCTIONS[name], scope, asked, *cases)
            answer = await to_thread.run_sync(work, abandon_on_cancel=True)
        finally:
            ended = True
        return tools.sealed(answer, self.key)


async def _report(context: Context, done: int, total: int, what: str) -> None:
    await context.session.report_progress(done, total, text.line(what, 200))


@cache
def _file() -> dict[str, Any]:
    content = Path(__file__).with_name("tools.yaml").read_bytes()
    return dict(yaml.load(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def _table() -> dict[str, dict[str, Any]]:
    """Return the tools of tools.yaml by name."""
    return dict(_file()["tools"])


@cache
def _declared(name: str) -> types.Tool:
    """Return the declaration of a tool; that of a verdict has the shapes of the contract's brief."""
    tool = _table()[name]
    mandatory = [*tool.get("logs", ()), *tool.get("runs", ()), *tool.get("required", ())]
    output = _object({"begin": MARK, **tool["output"], "end": MARK}, ["begin", "end"])
    if "brief" in tool["output"]:
        brief = json.loads(resources.schema("brief"))
        output["$defs"] = {**brief.pop("$defs"), "Brief": {k: v for k, v in brief.items() if not k.startswith("$")}}
    return types.Tool(
        name=name,
        title=tool["title"],
        description=tool["description"],
        input_schema=_object(tool["input"], mandatory),
        output_schema=output,
        annotations=READS,
    )


def _object(fields: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "object", "properties": dict(fields), "required": list(required), "additionalProperties": False,
    }  # fmt: skip


def _checked(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments. Raise UsageError if the tool does not take them."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    schema = _declared(name).input_schema
    asked = {field: value for field, value in given.items() if value is not None}
    for field in _table()[name].get("logs", ()):
        if isinstance(asked.get(field), str):
            asked[field] = [asked[field]]
    found = best_match(Draft202012Validator(schema).iter_errors(asked))
    if found is not None:
        place = "".join(f"{part}: " for part in found.absolute_path)
        raise UsageError(f"{name}: {place}{found.message}"[:500], f"it takes {', '.join(schema['properties'])}")
    return asked


def _refused(error: Exception) -> types.CallToolResult:
    """Return the message and the hint, on one line each: they may quote a name, or a log."""
    known = error if isinstance(error, PostmortemError) else PostmortemError(ours(error))
    parts = [text.line(part, 600) for part in (known.message, known.hint) if part]
    return types.CallToolResult(content=[types.TextContent(type="text", text="\n".join(parts))], is_error=True)
