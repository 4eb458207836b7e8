"""Imports only go down, so that a room can be read without the rooms above it."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path

import pytest

from conftest import ROOT

PACKAGE = ROOT / "postmortem"
FLOORS = (  # from the roof down; a room may import rooms of floors below its own, and itself
    ("__main__",),
    ("cli",),
    ("agents",),
    ("library.lint", "library.trial"),  # two modules that stand above their room
    ("torchrun", "hook"),  # which torchrun loads, and a rank
    ("compare",),
    ("history",),
    ("watch",),
    ("replay", "run"),
    ("gather", "writing"),
    ("notify",),
    ("analyze",),
    ("report", "spoken"),
    ("diagnose",),
    ("align",),
    ("reading",),
    ("parsers",),
    ("scan",),
    ("library",),
    ("collect", "completion"),
    ("commands", "contract", "frame", "kept", "privacy", "output", "pool"),
    (
        "gather.items",
        "hooks",
        "overview",
        "model",
        "errors",
        "resources",
        "version",
        "digits",
        "late",
        "vocabulary",
        "process",
        "fingerprint",
    ),
)
FLOOR = {room: -height for height, rooms in enumerate(FLOORS) for room in rooms}
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 400
LONG_MODULES: dict[str, int] = {}  # a module that is one thing and longer: its name and its limit
IN_A_CIRCLE: set[str] = set()  # rooms whose modules still import each other
OUTSIDE = {"os", "io", "pathlib", "subprocess", "tempfile", "shutil", "socket", "urllib"}
EVALUATING = {"eval", "exec", "pickle.load", "pickle.loads", "os.system", "marshal.loads", "yaml.unsafe_load"}
OPENING = {
    "open",
    "read_text",
    "read_bytes",
    "write_text",
    "write_bytes",
    "iterdir",
    "glob",
    "rglob",
    "scandir",
    "listdir",
    "Popen",
}


@cache
def tree(module: Path) -> ast.Module:
    return ast.parse(module.read_text())


def room(module: Path) -> str:
    return floor_of(*module.relative_to(PACKAGE).with_suffix("").parts)


def floor_of(*parts: str) -> str:
    """The room that these parts of a name lead into, or the one module of it that has a floor of its own."""
    alone = ".".join(parts[:2])
    return alone if alone in FLOOR else parts[0]


def imports(module: Path) -> Iterator[tuple[int, str]]:
    """Every module that is imported anywhere in the file, inside functions and for types too."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: write imports in full"
            assert node.module
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def rooms_used(module: Path) -> Iterator[tuple[int, str]]:
    for line, name in imports(module):
        parts = name.split(".")
        if parts[0] != "postmortem":
            continue
        if len(parts) > 1 and parts[1] in FLOOR:
            yield line, floor_of(*parts[1:])
        elif len(parts) > 1 and parts[1] in ("Incident", "Options"):
            yield line, "analyze"


def is_job(module: Path) -> bool:
    """The training scripts of replay run in processes of their own, beside the package."""
    return "scenarios" in module.parts


@pytest.mark.parametrize("module", [m for m in MODULES if not is_job(m)], ids=lambda m: str(m.relative_to(ROOT)))
def test_imports_only_go_down(module: Path) -> None:
    own = room(module)
    if own == "__init__":
        used = {other for _, other in rooms_used(module)}
        assert used == {"analyze", "version"}  # the public names, fetched when asked for
        return
    assert own in FLOOR, f"give {own} a floor in this test"
    upward = [
        f"line {line}: {other}" for line, other in rooms_used(module) if other != own and FLOOR[other] >= FLOOR[own]
    ]
    assert not upward, f"{own} imports {', '.join(upward)}"


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Within a room too, inside functions too."""
    names = {".".join(m.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): m for m in MODULES}
    graph = {
        name: set(said_by(module, names.keys())) - {name}
        for name, module in names.items()
        if room(module) not in IN_A_CIRCLE
    }
    assert graph["postmortem.input.open"] >= {"postmortem.input.remote", "postmortem.input.names"}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as e:
        pytest.fail(" imports ".join(reversed(e.args[1])))


def said_by(module: Path, known: Set[str]) -> Iterator[str]:
    """The modules that a module takes names from:
    of `from room import part` it is the part, where that is a module."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in known else node.module for name in inner)


def test_only_the_jobs_of_replay_and_what_torchrun_loads_import_torch() -> None:
    heavy = [m for m in MODULES if not is_job(m) and any(name.split(".")[0] == "torch" for _, name in imports(m))]
    assert heavy == [PACKAGE / "torchrun.py"]


def test_diagnose_opens_no_files() -> None:
    """A verdict is a function of the timeline; what a test can build by hand, a reader can follow."""
    for module in (m for m in MODULES if room(m) == "diagnose"):
        touched = {name.split(".")[0] for _, name in imports(module)} & OUTSIDE
        assert not touched, f"{module} imports {touched}"
        calls = (n.func for n in ast.walk(tree(module)) if isinstance(n, ast.Call))
        names = {
            f.attr if isinstance(f, ast.Attribute) else f.id for f in calls if isinstance(f, ast.Attribute | ast.Name)
        }
        assert not names & OPENING, f"{module} calls {names & OPENING}"


def test_report_knows_no_parser_and_no_scanner() -> None:
    for module in (m for m in MODULES if room(m) == "report"):
        assert not {other for _, other in rooms_used(module)} & {
            "parsers",
            "scan",
            "collect",
            "align",
            "diagnose",
            "analyze",
        }, module


def test_nothing_evaluates_what_it_reads() -> None:
    """Logs are hostile input: no pickle.load, no eval, no shell."""
    for module in (m for m in MODULES if not is_job(m)):
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.Call):
                where = f"{module}:{node.lineno}"
                assert ast.unparse(node.func) not in EVALUATING, where
                assert not [k for k in node.keywords if k.arg == "shell" and ast.unparse(k.value) != "False"], where


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.relative_to(ROOT)))
def test_a_module_is_one_screenful_or_ten(module: Path) -> None:
    lines = len(module.read_text().splitlines())
    assert lines <= LONG_MODULES.get(str(module.relative_to(ROOT)), MAX_LINES), "is it still one thing?"


def test_every_module_says_what_it_is() -> None:
    silent = [str(m.relative_to(ROOT)) for m in MODULES if m.stat().st_size and not ast.get_docstring(tree(m))]
    assert not silent


MAX_COMPLEXITY = 15  # McCabe's number, and parts of comprehensions and operands of `and` and `or` too
COMPLEX: dict[str, int] = {}


def complexity(function: ast.AST) -> int:
    """1 and one for each way that a function may take: a branch, a loop, a handler, an operand of `and` and `or`, a part
    or a condition of a comprehension. Functions inside it count with it."""
    found = 1
    for node in ast.walk(function):
        if isinstance(node, ast.If | ast.IfExp | ast.For | ast.While | ast.ExceptHandler | ast.match_case):
            found += 1
        elif isinstance(node, ast.BoolOp):
            found += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            found += 1 + len(node.ifs)
    return found


def functions() -> Iterator[tuple[str, ast.AST]]:
    for module in (m for m in MODULES if room(m) == "diagnose"):
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.FunctionDef):
                yield f"{module.relative_to(PACKAGE / 'diagnose')}:{node.name}", node


def test_complexity_counts_branches_operands_and_comprehensions() -> None:
    plain = ast.parse("def f(a):\n    return a")
    assert complexity(plain) == 1
    busy = ast.parse(
        "def f(a):\n    if a and b or c:\n        return [x for x in a if x if not x]\n    return 1 if a else 2"
    )
    assert complexity(busy) == 1 + 1 + 2 + 3 + 1


def test_no_function_of_diagnose_takes_more_than_a_moment_to_follow() -> None:
    over = {name: n for name, f in functions() if (n := complexity(f)) > COMPLEX.get(name, MAX_COMPLEXITY)}
    told = [f"{name} has {n}, {MAX_COMPLEXITY} are allowed" for name, n in sorted(over.items())]
    assert not over, "give a step a name and a function of its own:\n" + "\n".join(told)


def test_what_is_cut_by_now_needs_no_exception() -> None:
    known = {name: complexity(f) for name, f in functions()}
    simple = [name for name in COMPLEX if known.get(name, 0) <= MAX_COMPLEXITY]
    assert not simple, f"take {', '.join(simple)} out of COMPLEX"
