"""How many small faults in the reasoning the fast tests notice.

    python benchmarks/mutation.py [--number 250] [--seed 1] [--only diagnose/who] [--workers 2]

A seeded sample of mutants of postmortem/diagnose, align and runs: another comparison, constant,
word, boolean operator or return value, a `not` less. Each is imported in place of its module by a process
of its own, which runs the fast tests until one fails. Prints the score of each folder and every mutant that
survived.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import os
import random
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
FOLDERS = ("diagnose", "align", "runs")
ROOMS = tuple(f"postmortem.{folder}" for folder in FOLDERS)
NONE_CHOSEN = 5  # pytest's code where all tests of a file are slow
LIMIT_S = 120  # of processor time; a mutant that runs longer is noticed
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
INERT = ("frozen", "slots", "eq", "repr", "maxsize", "strict", "init")  # arguments that change no result
WORD = re.compile(r"[a-z][a-z_-]*")
STORIES = ("standstill", "counters", "flight_recorder", "faults", "excerpts", "unwrap", "line_owners", "incomplete")
SLOW = (  # tests that no mutant changes, and the most expensive one
    "test_diagnose_order.py::test_a_library_is_the_same_from_folders_of_other_names",
    "test_flight_recorder.py::test_fields_of_other_types_than_torch_writes",
    "test_flight_recorder.py::test_a_large_dump_is_cut_to_its_last_entries",
    "test_diagnose_order.py::test_a_job_that_finished_did_not_fail_whatever_others_state",
)
WHOLE = (["test_golden.py"], ["test_report_text.py", "test_docs.py"])
SUITES = {  # run one after the other, until one fails
    "diagnose": (["diagnose"], ["test_diagnose_*.py", *(f"test_{name}.py" for name in STORIES)], *WHOLE),
    "align": (["align", "test_align_*.py"], ["diagnose", "test_diagnose_*.py"], *WHOLE),
    "runs": (["test_runs.py", "test_jobs.py", "test_excerpts.py"], ["test_interrupted.py", "diagnose"], *WHOLE),
}


class Mutant(NamedTuple):
    """The change number `place` of a module."""

    path: Path
    place: int
    line: int
    edit: str

    @property
    def module(self) -> str:
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}  {self.edit}"


class Changes(ast.NodeTransformer):
    """Counts the places at which a module can be changed, and changes it at one of them."""

    def __init__(self, wanted: int = -1) -> None:
        self.wanted = wanted
        self.found: list[tuple[int, str]] = []

    def at(self, node: ast.AST, edit: str) -> bool:
        self.found.append((getattr(node, "lineno", 0), edit))
        return len(self.found) - 1 == self.wanted

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        for i, op in enumerate(node.ops):
            other = COMPARED[type(op)]
            if self.at(node, f"{type(op).__name__} -> {other.__name__} in `{ast.unparse(node)[:80]}`"):
                node.ops[i] = other()
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """In `e.where.line or 0` the 0 replaces a missing number: its value is irrelevant."""
        *others, last = node.values
        if isinstance(node.op, ast.Or) and isinstance(last, ast.Constant) and not last.value:
            node.values = [*map(self.visit, others), last]
            return node
        self.generic_visit(node)
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        if self.at(node, f"-> {type(other).__name__} in `{ast.unparse(node)[:80]}`"):
            node.op = other
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) and self.at(node, f"no `not` in `{ast.unparse(node)[:80]}`"):
            return node.operand
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        arithmetic = isinstance(node.op, ast.Add | ast.Sub)
        if arithmetic and self.at(node, f"+ <-> - in `{ast.unparse(node)[:80]}`"):
            node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.generic_visit(node)
        empty = isinstance(node.value, ast.Constant) and not node.value.value  # None for False is equivalent
        if node.value is not None and not empty and self.at(node, f"return None for `{ast.unparse(node)[:80]}`"):
            node.value = ast.Constant(None)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        value: Any = node.value
        other: Any = None
        if isinstance(value, bool):
            other = not value
        elif isinstance(value, int | float):
            other = 2 * value + 1
        elif isinstance(value, str) and WORD.fullmatch(value):
            other = f"x{value}"
        if other is not None and self.at(node, f"{value!r} -> {other!r}"):
            return ast.copy_location(ast.Constant(other), node)
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        return node if node.arg in INERT else self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """The body and the defaults; no annotations."""
        node.body = [self.visit(part) for part in node.body]
        node.args.defaults = [self.visit(part) for part in node.args.defaults]
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Leave the words of a sentence alone."""
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                part.value = self.visit(part.value)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        return node


def mutants(only: str = "") -> list[Mutant]:
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / "postmortem" / folder).rglob("*.py")):
            if only in str(path):
                changes = Changes()
                changes.visit(ast.parse(path.read_text()))
                found += [Mutant(path, i, *place) for i, place in enumerate(changes.found)]
    return found


class Loader(SourceLoader):
    """Loads a module with one change in it."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def get_filename(self, fullname: str) -> str:
        return str(self.mutant.path)

    def get_data(self, path: str | bytes) -> bytes:
        return Path(os.fsdecode(path)).read_bytes()

    def get_code(self, fullname: str) -> CodeType:
        tree = Changes(self.mutant.place).visit(ast.parse(self.mutant.path.read_text()))
        return compile(ast.fix_missing_locations(tree), str(self.mutant.path), "exec")


class Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname != self.mutant.module:
            return None
        file = self.mutant.path
        inside = [str(file.parent)] if file.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(
            fullname, file, loader=Loader(self.mutant), submodule_search_locations=inside
        )


# ── the tests ──────────────────────────────────────────────────────────────────────────────────────


def prepare() -> None:
    """Import the modules that no mutant changes, and read the sample logs once: processes that are forked have both."""
    sys.path[:0] = [str(ROOT), str(TESTS)]
    import hypothesis
    import hypothesis.strategies
    import pandas  # noqa: F401
    import pytest  # noqa: F401

    import postmortem.report.html  # no mutant changes it
    from postmortem import input as collect
    from postmortem import reading
    from postmortem.cli import app as cli  # noqa: F401

    loaded = [name for name in sys.modules if name.startswith(ROOMS)]
    assert not loaded, f"{loaded} would not be changed by a mutant"
    postmortem.report.html.template()
    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    hypothesis.settings.register_profile("mutation", phases=phases, database=None, deadline=None, max_examples=25)
    read_all, containers_read = reading.read_all, {}

    def remembered(containers: Sequence[Any], ways: Any) -> Any:
        key = tuple(str(c) for c in containers)
        return containers_read[key] if key in containers_read else read_all(containers, ways)

    for folder in (ROOT / "sample_logs", TESTS / "incidents" / "synthetic", TESTS / "goodlogs"):
        for case in sorted(folder.iterdir()):
            if case.is_dir():
                logs = case / "logs" if (case / "logs").is_dir() else case
                containers = collect.collect([str(logs)]).containers
                containers_read[tuple(str(c) for c in containers)] = read_all(containers, reading.Ways((), 1))
    reading.read_all = remembered


def suite(path: Path) -> list[list[str]]:
    """Tests of the module's own first, then those of its room, and last whole incidents."""
    room = path.relative_to(ROOT / "postmortem").parts[0]
    own = [p for p in TESTS.rglob("test_*.py") if p.stem.removeprefix("test_").endswith(path.stem)]
    stages = [own, *([p for name in names for p in TESTS.glob(name)] for names in SUITES[room])]
    return [sorted(map(str, files)) for files in stages if files]


def run_tests(mutant: Mutant | None, stages: Sequence[Sequence[str]]) -> int:
    """In a forked process: 0 where all tests pass."""
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))
    import hypothesis
    import pytest

    hypothesis.settings.load_profile("mutation")
    if mutant is not None:
        sys.meta_path.insert(0, Finder(mutant))
    options = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
    options += ["--no-header", "--hypothesis-seed=0", *(f"--deselect=tests/{name}" for name in SLOW)]
    with (
        Path(os.devnull).open("w") as void,
        contextlib.redirect_stdout(void),
        contextlib.redirect_stderr(void),
    ):
        codes = (int(pytest.main([*options, *files])) for files in stages)
        return next((code for code in codes if code not in (0, NONE_CHOSEN)), 0)


def start(mutant: Mutant | None, stages: Sequence[Sequence[str]]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = run_tests(mutant, stages)
    except BaseException:  # a module that cannot be imported is noticed too
        code = 1
    os._exit(min(code, 9))


def judged(chosen: Sequence[Mutant], workers: int) -> Iterator[tuple[Mutant, bool]]:
    """Each mutant, and whether a test noticed it."""
    waiting, running = list(reversed(chosen)), {}
    while waiting or running:
        while waiting and len(running) < workers:
            mutant = waiting.pop()
            running[start(mutant, suite(mutant.path))] = mutant
        pid, status = os.wait()
        yield running.pop(pid), status != 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=250)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="only files whose path contains this")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    prepare()
    possible = mutants(given.only)
    chosen = random.Random(given.seed).sample(possible, min(given.number, len(possible)))
    for room in sorted({m.path.relative_to(ROOT / "postmortem").parts[0] for m in chosen}):
        any_file = next(m.path for m in chosen if room in m.path.parts)
        if os.waitpid(start(None, suite(any_file)), 0)[1]:
            print(f"the tests of {room} fail without a mutant")
            return 1
    began, killed, all_of = time.monotonic(), Counter[str](), Counter[str]()
    with contextlib.suppress(KeyboardInterrupt):  # report the results so far
        for mutant, noticed in judged(chosen, given.workers):
            room = mutant.path.relative_to(ROOT / "postmortem").parts[0]
            all_of[room] += 1
            killed[room] += noticed
            if not noticed:
                print(f"survived  {mutant}", flush=True)
            if all_of.total() % 25 == 0:
                print(f"{all_of.total()} of {len(chosen)}, {time.monotonic() - began:.0f} s", flush=True)
    for room, n in sorted(all_of.items()):
        print(f"{room}: {killed[room]} of {n} killed ({100 * killed[room] / n:.0f} %)")
    print(f"{all_of.total()} of {len(possible)} mutants, seed {given.seed}, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
