"""`postmortem.hook`: a rank notes its uncaught exception, and its stacks when asked; nothing else changes."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run_jobs import until

from conftest import ROOT, needs
from postmortem.live.hooks.postmortem_hook import SIGNAL

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="for Linux")
HOOKS = ROOT / "postmortem" / "live" / "hooks"
TRAINS = """\
def train():
    step = 17
    raise ValueError("label 4711 outside of [0, 10)")
train()
"""


def python(folder: Path, code: str, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A rank's program under the switch that `postmortem run` sets. A name of None in `env` stays unset."""
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        cwd=folder,
        env=switched_on(folder, **env),
        capture_output=True,
        text=True,
        timeout=60,
    )


def switched_on(folder: Path, **env: str) -> dict[str, str]:
    rank = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    path = {"PYTHONPATH": str(HOOKS), "POSTMORTEM_HOOK": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return {"PATH": os.environ["PATH"]} | rank | path | env


def bare(folder: Path, code: str, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {"PATH": os.environ["PATH"], "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"} | env
    return subprocess.run([sys.executable, *options, "-c", code], cwd=folder, env=clean, capture_output=True, text=True)


def noted(folder: Path) -> list[dict[str, Any]]:
    lines = [line for file in folder.glob("*.exceptions.jsonl") for line in file.read_text().splitlines()]
    return [json.loads(line) for line in lines]


# ── exceptions ──────────────────────────────────────────────────────────────────────────────────────────────


def test_an_uncaught_exception_is_one_line_with_rank_host_step_and_stack(tmp_path: Path) -> None:
    done = python(tmp_path, TRAINS)
    assert (done.returncode, done.stderr) == (1, bare(tmp_path, TRAINS).stderr)
    (record,) = noted(tmp_path)
    assert record["rank"] == 1 and record["in_step"] == 17 and record["host"] == os.uname().nodename
    assert record["message"] == "rank 1 raised ValueError"
    assert record["traceback"] == done.stderr
    assert record["world_size"] == 2 and record["time"].endswith("Z")


def test_torchrun_finds_the_traceback_although_nobody_used_record(tmp_path: Path) -> None:
    file = tmp_path / "error.json"
    done = python(tmp_path, TRAINS, TORCHELASTIC_ERROR_FILE=str(file))
    told = json.loads(file.read_text())["message"]
    assert told["message"] == "ValueError: label 4711 outside of [0, 10)"
    assert told["extraInfo"]["py_callstack"] == done.stderr and told["extraInfo"]["timestamp"].isdecimal()


def test_what_the_program_wrote_into_the_error_file_stays(tmp_path: Path) -> None:
    file = tmp_path / "error.json"
    file.write_text("its own")
    python(tmp_path, TRAINS, TORCHELASTIC_ERROR_FILE=str(file))
    assert file.read_text() == "its own"


@pytest.mark.parametrize(
    "code", ["raise SystemExit(3)", "import os; os._exit(3)", "try:\n 1/0\nexcept ZeroDivisionError: exit(3)"]
)
def test_an_end_that_is_no_uncaught_exception_leaves_no_file(tmp_path: Path, code: str) -> None:
    assert python(tmp_path, code).returncode == 3
    assert not noted(tmp_path) and not list(tmp_path.glob("error.json"))


def test_an_exception_in_a_thread_is_noted_and_the_process_goes_on(tmp_path: Path) -> None:
    code = "import threading\nt = threading.Thread(target=lambda: 1/0, name='loader')\nt.start(); t.join(); print('on')"
    file = tmp_path / "error.json"
    done = python(tmp_path, code, TORCHELASTIC_ERROR_FILE=str(file))
    assert done.stdout == "on\n" and done.returncode == 0 and "Exception in thread loader" in done.stderr
    (record,) = noted(tmp_path)
    assert record["thread"] == "loader" and record["message"] == "rank 1 raised ZeroDivisionError in thread loader"
    assert not file.exists(), "the rank has not failed"


def test_a_hook_of_the_program_runs_as_well(tmp_path: Path) -> None:
    """torch wraps the hook that it finds; others replace it. Each exception is noted once, either way."""
    wraps = "import sys; old = sys.excepthook\ndef h(*a):\n print('mine'); old(*a)\nsys.excepthook = h\n1/0"
    replaces = "import sys\nsys.excepthook = lambda *a: print('mine')\n1/0"
    for number, code in enumerate((wraps, replaces)):
        folder = tmp_path / str(number)
        folder.mkdir()
        done = python(folder, code)
        assert (done.stdout, done.stderr) == ("mine\n", bare(folder, code).stderr)
        assert len(noted(folder)) == 1


def test_an_exception_that_cannot_be_shown_is_the_programs_own_trouble(tmp_path: Path) -> None:
    code = "class E(Exception):\n def __str__(self): raise RuntimeError('no')\nraise E()"
    assert python(tmp_path, code).stderr == bare(tmp_path, code).stderr


def test_a_very_long_exception_is_cut(tmp_path: Path) -> None:
    python(tmp_path, "raise ValueError('x' * 3_000_000)")
    (record,) = noted(tmp_path)
    assert len(record["traceback"]) < 70_000


# ── stacks ──────────────────────────────────────────────────────────────────────────────────────────────────


def asleep(folder: Path, code: str, **env: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-u", "-c", code]
    running = subprocess.Popen(words, cwd=folder, env=switched_on(folder, **env), stdout=subprocess.PIPE, text=True)
    assert running.stdout
    assert running.stdout.readline() == "up\n"
    return running


def test_a_rank_that_waits_for_a_lock_for_ever_writes_where_when_asked(tmp_path: Path) -> None:
    """faulthandler answers from the signal's handler: also where no bytecode runs any more."""
    code = "import threading\ndef load_batch():\n lock = threading.Lock(); lock.acquire(); print('up'); lock.acquire()\nload_batch()"
    running = asleep(tmp_path, code)
    os.kill(running.pid, SIGNAL)
    (file,) = tmp_path.glob(f"rank1.pid{running.pid}.stacks.txt")
    until(lambda: "load_batch" in file.read_text())
    assert running.poll() is None, "it was asked, not killed"
    running.kill()
    running.wait()


def test_it_costs_no_thread_and_one_descriptor_out_of_the_way(tmp_path: Path) -> None:
    code = "import os; print(sorted(os.listdir('/proc/self/fd'), key=int), len(os.listdir('/proc/self/task')))"
    assert python(tmp_path, code).stdout == "['0', '1', '2', '3', '200'] 1\n", "3 is the folder that it lists"
    assert not list(tmp_path.iterdir()), "and nothing is left of a good end"


def test_a_handler_of_the_sites_own_for_that_signal_stays(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(f"import signal\nsignal.signal({SIGNAL}, lambda *_: print('mine'))")
    code = f"import os; os.kill(os.getpid(), {SIGNAL})"
    done = python(tmp_path, code, PYTHONPATH=f"{HOOKS}{os.pathsep}{site}")
    assert done.stdout == "mine\n"


def test_the_crash_of_a_rank_without_faulthandler_stands_in_its_file(tmp_path: Path) -> None:
    code = "import os, signal\ndef native_op(): os.kill(os.getpid(), signal.SIGSEGV)\nnative_op()"
    assert python(tmp_path, code).returncode == -signal.SIGSEGV
    (file,) = tmp_path.glob("*.stacks.txt")
    assert "Fatal Python error: Segmentation fault" in file.read_text() and "native_op" in file.read_text()


# ── nothing else changes ────────────────────────────────────────────────────────────────────────────────────


def test_the_sites_own_sitecustomize_runs_and_its_error_is_shown_as_ever(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    for text in (
        "import sys; sys.of_the_site = 7",
        "raise RuntimeError('the site is broken')",
        "import nowhere",
    ):
        (site / "sitecustomize.py").write_text(text)
        code = "import sys; print(getattr(sys, 'of_the_site', None), 'postmortem' in str(sys.path))"
        with_hook = python(tmp_path, code, PYTHONPATH=f"{HOOKS}{os.pathsep}{site}")
        without = bare(tmp_path, code, PYTHONPATH=str(site))
        assert (with_hook.stdout, with_hook.stderr) == (without.stdout, without.stderr)
        assert python(tmp_path, TRAINS, PYTHONPATH=f"{HOOKS}{os.pathsep}{site}").returncode == 1
        assert len(noted(tmp_path)) == 1, "and ours is there all the same"
        next(tmp_path.glob("*.exceptions.jsonl")).unlink()


@pytest.mark.parametrize("options", [["-I"], ["-E"], ["-S"], ["-s"], ["-P"], ["-O"], ["-B"]])
def test_whatever_python_is_told_the_program_behaves_as_without(tmp_path: Path, options: list[str]) -> None:
    code = "import sys; print([p for p in sys.path if p != sys.path[0]], 'sitecustomize' in sys.modules)\n1/0"
    with_hook, without = python(tmp_path, code, *options), bare(tmp_path, code, *options)
    if options in (["-S"],):  # nothing runs that could take our folder out of the path
        assert with_hook.stdout.replace(f"'{HOOKS}', ", "") == without.stdout
    else:
        assert with_hook.stdout == without.stdout
    assert (with_hook.stderr, with_hook.returncode) == (without.stderr, without.returncode)


HOSTILE = ["/nowhere/at/all", "/proc/1/task", "/dev/null", "x" * 5000, "\n", "../..\udcff", "~", "/"]


@pytest.mark.parametrize("folder", HOSTILE, ids=range(len(HOSTILE)))
def test_a_folder_that_is_none_costs_the_evidence_only(tmp_path: Path, folder: str) -> None:
    work = tmp_path / "a" / "b" / "c"
    work.mkdir(parents=True)
    env = {"POSTMORTEM_HOOK": folder}
    if folder in ("/", "~"):
        env["RANK"] = "no number"  # and root may write there
    done = python(work, TRAINS, **env)
    assert (done.returncode, done.stderr) == (1, bare(work, TRAINS).stderr)
    for file in Path("/").glob("pid*.exceptions.jsonl"):
        file.unlink()


@pytest.mark.parametrize("rank", ["-1", "x", "9" * 40, "../../etc/passwd", "1\n2", "²"])
def test_a_rank_that_is_no_number_is_no_part_of_a_name(tmp_path: Path, rank: str) -> None:
    done = python(tmp_path, TRAINS, RANK=rank)
    assert done.returncode == 1
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("pid") and noted(tmp_path)[0]["rank"] is None


def test_who_is_no_rank_notes_nothing(tmp_path: Path) -> None:
    """torchrun itself, a compiler that it starts, a tool in the same shell. Operators for PyTorch set RANK for the
    launcher, too."""
    for missing in ("RANK", "LOCAL_RANK"):
        python(tmp_path, TRAINS, **{missing: ""})
    assert not list(tmp_path.iterdir())


def test_a_helper_that_a_rank_starts_does_not_speak_for_it(tmp_path: Path) -> None:
    """It fails, the rank handles that and goes on: torchrun must not find the helper's error as the rank's."""
    file = tmp_path / "error.json"
    code = "import subprocess, sys; print(subprocess.run([sys.executable, '-c', '1/0'], stderr=-1).returncode)"
    through = code.replace("[sys.executable, '-c', '1/0']", "sys.executable + ' -c 1/0; true', shell=True")
    for program in (code, through):
        done = python(tmp_path, program, TORCHELASTIC_ERROR_FILE=str(file))
        assert done.returncode == 0 and not list(tmp_path.iterdir())


def test_a_rank_behind_a_script_of_the_shell_is_a_rank(tmp_path: Path) -> None:
    """`torchrun --no-python bind.sh`: the script has the rank's environment, and is not it."""
    (tmp_path / "train.py").write_text(TRAINS)
    words = ["sh", "-c", f"{sys.executable} train.py; exit 1"]
    subprocess.run(words, cwd=tmp_path, env=switched_on(tmp_path), stderr=subprocess.DEVNULL, timeout=60)
    assert noted(tmp_path)[0]["rank"] == 1


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_a_rank_work_as_ever(tmp_path: Path, method: str) -> None:
    (tmp_path / "job.py").write_text(
        "import multiprocessing as mp\n"
        "def work(n):\n    return 10 // n\n"
        "if __name__ == '__main__':\n"
        f"    with mp.get_context('{method}').Pool(2) as pool:\n"
        "        print(pool.map(work, [1, 2, 5]))\n"
        "        try: pool.map(work, [0])\n"
        "        except ZeroDivisionError: print('caught')\n"
    )
    words = [sys.executable, "job.py"]
    done = subprocess.run(words, cwd=tmp_path, env=switched_on(tmp_path), capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[10, 5, 2]\ncaught\n", "")
    assert [file.name for file in tmp_path.iterdir()] == ["job.py"]


def test_imported_and_switched_on_each_exception_is_noted_once(tmp_path: Path) -> None:
    path = f"{HOOKS}{os.pathsep}{ROOT}"
    done = python(tmp_path, "import postmortem.hook, postmortem.hook as again\n1/0", PYTHONPATH=path)
    assert done.stderr.count("Traceback") == 1 and len(noted(tmp_path)) == 1


def test_one_import_is_enough_for_ranks_of_another_launcher(tmp_path: Path) -> None:
    code = "import postmortem.hook\n1/0"
    done = bare(tmp_path, code, PYTHONPATH=str(ROOT), PYTHONDONTWRITEBYTECODE="1", OMPI_COMM_WORLD_RANK="3", RANK="")
    assert done.returncode == 1
    (record,) = noted(tmp_path / "postmortem-hook")
    assert record["rank"] == 3


@needs("root", "unshare")
def test_on_a_full_disk_and_on_one_that_is_read_only_the_program_runs_on(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    expected = bare(tmp_path, TRAINS).stderr
    full = f"dd if=/dev/zero of={disk}/all bs=4096 2>/dev/null"
    for spoil in (full, f"mount -o remount,ro {disk}"):
        script = f'mount -t tmpfs -o size=64k none {disk}; {spoil}; {sys.executable} -c "$0"; echo $?'
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, TRAINS],
            cwd=tmp_path,
            env=switched_on(tmp_path, POSTMORTEM_HOOK=str(disk), PATH=os.environ["PATH"]),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.stdout, done.stderr) == ("1\n", expected)


@pytest.mark.parametrize("file", sorted(HOOKS.glob("*.py")), ids=lambda f: f.name)
def test_an_old_python_can_read_it(file: Path) -> None:
    tree = ast.parse(file.read_text(), feature_version=(3, 8))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    }
    assert imported <= set(sys.stdlib_module_names) | {"sitecustomize", "postmortem_hook"}
