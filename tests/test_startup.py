"""The command line starts fast: what it imports is counted, not timed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import postmortem
from postmortem.cli import app as cli
from postmortem.cli import overview

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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"postmortem", "postmortem.version"}


def test_public_names_are_importable() -> None:
    assert postmortem.Options().redact is True
    assert dir(postmortem) == sorted(postmortem.__all__) == ["Incident", "Options", "__version__", "analyze"]
    with pytest.raises(AttributeError, match="analyse"):
        postmortem.analyse  # noqa: B018
    code = "import postmortem.analyze, postmortem; assert callable(postmortem.analyze), postmortem.analyze"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_overview_has_the_help_of_each_command() -> None:
    for name, text in overview.COMMANDS.items():
        assert cli.root().get_command(None, name).help == f"{text[0].upper()}{text[1:]}."
