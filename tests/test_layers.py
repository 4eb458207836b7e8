"""Imports only go down, so that a room can be read without the rooms above it; and the command line starts fast: what it
imports is counted, not timed."""

from __future__ import annotations

import ast
import graphlib
import json
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import postmortem
from conftest import ROOT, python, table
from postmortem.cli import app as cli
from postmortem.cli import overview

PACKAGE = ROOT / "postmortem"
FLOOR = {room: -height for height, rooms in enumerate(table("layers")["floors"]) for room in rooms}
MODULES = sorted(p for p in PACKAGE.rglob("*.py") if "scenarios" not in p.parts)  # those are training scripts
MAX_FILES = 8  # at the top of the package
MAX_LINES = 400
MAX_COMPLEXITY = 15  # McCabe's number, with parts of comprehensions and operands of `and` and `or`
OUTSIDE = {"os", "io", "pathlib", "subprocess", "tempfile", "shutil", "socket", "urllib"}
OPENING = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "glob", "rglob", "Popen"}
EVALUATING = {"eval", "exec", "pickle.load", "pickle.loads", "os.system", "marshal.loads", "yaml.unsafe_load"}


@cache
def tree(module: Path) -> ast.Module:
    return ast.parse(module.read_text())


@cache
def nodes(module: Path) -> list[ast.AST]:
    return list(ast.walk(tree(module)))


def room(module: Path) -> str:
    return module.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(module: Path) -> Iterator[tuple[int, str]]:
    """Every module imported anywhere in the file, inside functions and for types too."""
    for node in nodes(module):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{module}:{node.lineno}: write imports in full"
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def rooms_used(module: Path) -> Iterator[tuple[int, str]]:
    for line, name in imports(module):
        parts = name.split(".")
        if parts[0] == "postmortem" and len(parts) > 1 and parts[1] in FLOOR:
            yield line, parts[1]


def functions(where: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for module in (m for m in MODULES if room(m) == where):
        for node in nodes(module):
            if isinstance(node, ast.FunctionDef):
                yield f"{module.relative_to(PACKAGE)}:{node.lineno} {node.name}", node


def complexity(function: ast.AST) -> int:
    found = 1
    for node in ast.walk(function):
        if isinstance(node, ast.If | ast.IfExp | ast.For | ast.While | ast.ExceptHandler | ast.match_case):
            found += 1
        elif isinstance(node, ast.BoolOp):
            found += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            found += 1 + len(node.ifs)
    return found


def test_imports_only_go_down() -> None:
    upward = [
        f"{module.relative_to(PACKAGE)}:{line} imports {other}"
        for module in MODULES
        if (own := room(module)) != "__init__"
        for line, other in sorted(set(rooms_used(module)))
        if other != own and FLOOR[other] >= FLOOR[own]
    ]
    assert not upward, "\n".join(upward)


def test_every_room_has_a_floor() -> None:
    assert {room(m) for m in MODULES} - {"__init__"} == set(FLOOR)


def test_no_module_imports_itself_through_others() -> None:
    names = {".".join(m.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): m for m in MODULES}
    graph = defaultdict(set)
    for name, module in names.items():
        if name != "postmortem":
            graph[name] = {used for _, used in imports(module) if used in names} - {name, "postmortem"}
            # `from room import part` uses the part, where that is a module, and not the room
            parts = {used.rpartition(".")[0] for used in graph[name]}
            graph[name] -= {used for used in parts if not _uses_a_name_of(module, used, names.keys())}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        raise AssertionError(" imports ".join(reversed(error.args[1]))) from None


def _uses_a_name_of(module: Path, package: str, known: object) -> bool:
    """Whether something other than a module is imported from the package."""
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == package
        and any(f"{package}.{alias.name}" not in known for alias in node.names)  # type: ignore[operator]
        for node in nodes(module)
    )


def test_the_layout_stays_readable() -> None:
    top = [p.name for p in PACKAGE.glob("*.py")]
    assert len(top) <= MAX_FILES, sorted(top)
    for module in MODULES:
        assert len(module.read_text().splitlines()) <= MAX_LINES, f"{module}: is it still one thing?"
        assert not module.stat().st_size or ast.get_docstring(tree(module)), f"{module} has no docstring"


def test_torch_is_imported_only_in_a_job() -> None:
    heavy = [m for m in MODULES if any(name.split(".")[0] == "torch" for _, name in imports(m))]
    assert heavy == [PACKAGE / "torchrun.py"]


def test_no_module_imports_click() -> None:
    assert not [m for m in MODULES if any(name.split(".")[0] == "click" for _, name in imports(m))]


def test_the_diagnosis_opens_no_files() -> None:
    """A verdict is a function of the timeline."""
    assert (modules := [m for m in MODULES if room(m) in ("diagnose", "say")])
    for module in modules:
        touched = {name.split(".")[0] for _, name in imports(module)} & OUTSIDE
        calls = (n.func for n in nodes(module) if isinstance(n, ast.Call))
        names = {
            f.attr if isinstance(f, ast.Attribute) else f.id for f in calls if isinstance(f, ast.Attribute | ast.Name)
        }
        assert not touched and not names & OPENING, f"{module}: {touched | names & OPENING}"


def test_nothing_evaluates_its_input() -> None:
    """Logs are hostile input: no pickle.load, no eval, no shell."""
    calls = [(module, node) for module in MODULES for node in nodes(module) if isinstance(node, ast.Call)]
    assert calls
    for module, node in calls:
        where = f"{module}:{node.lineno}"
        assert ast.unparse(node.func) not in EVALUATING, where
        shells = [k for k in node.keywords if k.arg == "shell" and ast.unparse(k.value) != "False"]
        assert not shells, where


def test_functions_of_the_diagnosis_are_simple() -> None:
    assert complexity(ast.parse("def f(a):\n    if a and b or c:\n        return [x for x in a if x if not x]")) == 7
    over = [f"{name}: {n}" for name, f in functions("diagnose") if (n := complexity(f)) > MAX_COMPLEXITY]
    assert not over, over


HEAVY = {"pandas", "numpy", "jinja2", "torch", "hyperscan", "regex", "re2", "yaml", "rich", "pebble", "distributed"}


def modules_after(*arguments: str) -> set[str]:
    """Run the command in a fresh interpreter; return what it had imported in the end."""
    code = (
        "import json, sys, runpy\n"
        f"sys.argv = ['postmortem', *{list(arguments)!r}]\n"
        "try: runpy.run_module('postmortem', run_name='__main__')\n"
        "except SystemExit as e: assert not e.code, e.code\n"
        "finally: print('\\n' + json.dumps(sorted(sys.modules)))\n"
    )
    done = python("-c", code, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_overview_imports_nothing() -> None:
    for arguments in ((), ("--help",), ("--version",)):
        loaded = modules_after(*arguments)
        assert not loaded & HEAVY
        assert "typer" not in loaded and "argparse" not in loaded


def test_the_help_of_a_command_imports_nothing_heavy() -> None:
    for command in ("analyze", "run", "patterns", "explain", "replay"):
        assert not modules_after(command, "--help") & (HEAVY - {"rich"}), command


def test_a_run_imports_nothing_that_costs_time_before_the_job_starts() -> None:
    """Nor after it, where all went well: the analysis of a failure is a process of its own."""
    assert not modules_after("run", "true") & (HEAVY | {"asyncio", "multiprocessing", "logging"})


def test_reading_the_library_needs_neither_frames_nor_templates() -> None:
    assert not modules_after("patterns", "list") & {"pandas", "numpy", "jinja2", "torch", "hyperscan"}


def test_import_of_the_package_is_free() -> None:
    code = "import sys, typing, __future__, collections.abc; before = set(sys.modules); import postmortem; "
    code += "print(*set(sys.modules) - before)"
    done = python("-c", code, check=True)
    assert set(done.stdout.split()) <= {"postmortem", "postmortem.version"}


def test_public_names_are_importable() -> None:
    assert postmortem.Options().redact is True
    assert dir(postmortem) == sorted(postmortem.__all__) == ["Incident", "Options", "__version__", "analyze"]
    with pytest.raises(AttributeError, match="analyse"):
        postmortem.analyse  # noqa: B018
    code = "import postmortem.analyze, postmortem; assert callable(postmortem.analyze), postmortem.analyze"
    python("-c", code, check=True)


def test_the_overview_has_the_help_of_each_command() -> None:
    for name, text in overview.COMMANDS.items():
        assert cli.root().get_command(None, name).help == f"{text[0].upper()}{text[1:]}."
