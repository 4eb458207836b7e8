"""`postmortem.hook`: a rank records its uncaught exception, and its stacks on request; nothing else changes."""

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
from run_jobs import wait_for

from conftest import ROOT, needs
from postmortem.live.hooks.postmortem_hook import SIGNAL

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="for Linux")
HOOKS = ROOT / "postmortem" / "live" / "hooks"
RANK = {"PATH": os.environ["PATH"], "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
TRAINS = """\
def train():
    step = 17
    raise ValueError("label 4711 outside of [0, 10)")
train()
"""


def hooked(folder: Path, **env: str) -> dict[str, str]:
    """Return the environment of a rank with the switch that `postmortem run` sets."""
    path = {"PYTHONPATH": str(HOOKS), "POSTMORTEM_HOOK": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return RANK | path | env


def execute(folder: Path, env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=60)


def python(folder: Path, code: str, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    return execute(folder, hooked(folder, **env), *options, "-c", code)


def bare(folder: Path, code: str, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    return execute(folder, RANK | env, *options, "-c", code)


def recorded(folder: Path) -> list[dict[str, Any]]:
    lines = [line for file in folder.glob("*.exceptions.jsonl") for line in file.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def test_an_uncaught_exception_is_a_record_and_torchrun_finds_its_traceback(tmp_path: Path) -> None:
    file = tmp_path / "error.json"
    done = python(tmp_path, TRAINS, TORCHELASTIC_ERROR_FILE=str(file))
    assert (done.returncode, done.stderr) == (1, bare(tmp_path, TRAINS).stderr)
    (record,) = recorded(tmp_path)
    assert record["rank"] == 1 and record["in_step"] == 17 and record["host"] == os.uname().nodename
    assert record["message"] == "rank 1 raised ValueError" and record["traceback"] == done.stderr
    assert record["world_size"] == 2 and record["time"].endswith("Z")
    error = json.loads(file.read_text())["message"]
    assert error["message"] == "ValueError: label 4711 outside of [0, 10)"
    assert error["extraInfo"]["py_callstack"] == done.stderr and error["extraInfo"]["timestamp"].isdecimal()
    file.write_text("its own")
    python(tmp_path, TRAINS, TORCHELASTIC_ERROR_FILE=str(file))
    assert file.read_text() == "its own", "the program wrote it"


def test_an_end_without_an_uncaught_exception_leaves_no_file(tmp_path: Path) -> None:
    for code in ("raise SystemExit(3)", "import os; os._exit(3)", "try:\n 1/0\nexcept ZeroDivisionError: exit(3)"):
        done = python(tmp_path, code, TORCHELASTIC_ERROR_FILE=f"{tmp_path}/error.json")
        assert done.returncode == 3 and not recorded(tmp_path) and not (tmp_path / "error.json").exists()


def test_an_exception_in_a_thread_is_recorded_and_the_process_goes_on(tmp_path: Path) -> None:
    code = "import threading\nt = threading.Thread(target=lambda: 1/0, name='loader')\nt.start(); t.join(); print('on')"
    limit = "import sys; sys.modules['postmortem_hook'].LARGE = 9\n"
    file = tmp_path / "error.json"
    done = python(tmp_path, code, TORCHELASTIC_ERROR_FILE=str(file))
    assert done.stdout == "on\n" and done.returncode == 0 and "Exception in thread loader" in done.stderr
    (record,) = recorded(tmp_path)
    assert record["thread"] == "loader" and record["message"] == "rank 1 raised ZeroDivisionError in thread loader"
    assert not file.exists(), "the rank has not failed"
    python(tmp_path, f"{limit}{code}\n{code}\n{TRAINS}")
    errors = [found["message"].split()[3] for found in recorded(tmp_path) if found["pid"] != record["pid"]]
    assert errors == ["ZeroDivisionError", "ValueError"], "threads that fail again and again do not fill the disk"


@pytest.mark.parametrize("code", [
    "import sys; old = sys.excepthook\ndef h(*a):\n print('mine'); old(*a)\nsys.excepthook = h\n1/0",
    "import sys\nsys.excepthook = lambda *a: print('mine')\n1/0",
    "class E(Exception):\n def __str__(self): raise RuntimeError('no')\nraise E()",
    "raise ValueError('x' * 3_000_000)",
], ids=["wrapped", "replaced", "unprintable", "long"])  # fmt: skip
def test_each_exception_is_recorded_once_and_the_output_is_unchanged(tmp_path: Path, code: str) -> None:
    """torch wraps the hook that it finds; other programs replace it."""
    done, without = python(tmp_path, code), bare(tmp_path, code)
    assert (done.stdout, done.stderr) == (without.stdout, without.stderr)
    (record,) = recorded(tmp_path)
    assert len(record["traceback"]) < 70_000


def test_a_rank_that_waits_for_a_lock_writes_its_stacks_on_request(tmp_path: Path) -> None:
    """faulthandler answers from the signal handler: also if no bytecode runs any more."""
    code = "import threading\ndef load_batch():\n lock = threading.Lock(); lock.acquire(); print('up'); lock.acquire()\nload_batch()"
    words = [sys.executable, "-u", "-c", code]
    running = subprocess.Popen(words, cwd=tmp_path, env=hooked(tmp_path), stdout=subprocess.PIPE, text=True)
    assert running.stdout and running.stdout.readline() == "up\n"
    os.kill(running.pid, SIGNAL)
    (file,) = tmp_path.glob(f"rank1.pid{running.pid}.stacks.txt")
    wait_for(lambda: "load_batch" in file.read_text())
    assert running.poll() is None, "it was asked, not killed"
    running.kill()
    running.wait()


def test_it_costs_no_thread_and_one_high_descriptor(tmp_path: Path) -> None:
    code = "import os; print(sorted(os.listdir('/proc/self/fd'), key=int), len(os.listdir('/proc/self/task')))"
    assert python(tmp_path, code).stdout == "['0', '1', '2', '3', '1000'] 1\n", "3 is the folder that it lists"
    assert not list(tmp_path.iterdir()), "a success leaves no file"


def test_a_crash_of_a_rank_without_faulthandler_is_in_its_file(tmp_path: Path) -> None:
    code = "import os, signal\ndef native_op(): os.kill(os.getpid(), signal.SIGSEGV)\nnative_op()"
    assert python(tmp_path, code).returncode == -signal.SIGSEGV
    (file,) = tmp_path.glob("*.stacks.txt")
    assert "Fatal Python error: Segmentation fault" in file.read_text() and "native_op" in file.read_text()


@pytest.mark.parametrize("text", [
    "import sys; sys.of_the_site = 7", "raise RuntimeError('the site is broken')", "import nowhere",
    f"import signal; signal.signal({SIGNAL}, lambda *_: print('mine'))",
])  # fmt: skip
def test_the_sitecustomize_of_the_site_runs_with_its_errors_and_handlers(tmp_path: Path, text: str) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(text)
    code = "import os, sys; print(getattr(sys, 'of_the_site', None), 'postmortem' in str(sys.path))"
    if "signal" in text:
        code += f"\nos.kill(os.getpid(), {SIGNAL})"
    path = f"{HOOKS}{os.pathsep}{site}"
    with_hook, without = python(tmp_path, code, PYTHONPATH=path), bare(tmp_path, code, PYTHONPATH=str(site))
    assert (with_hook.stdout, with_hook.stderr) == (without.stdout, without.stderr)
    assert python(tmp_path, TRAINS, PYTHONPATH=path).returncode == 1 and len(recorded(tmp_path)) == 1


def test_with_any_option_of_python_the_program_behaves_as_without(tmp_path: Path) -> None:
    code = "import sys; print([p for p in sys.path if p != sys.path[0]], 'sitecustomize' in sys.modules)\n1/0"
    for option in ("-I", "-E", "-S", "-s", "-P", "-O", "-B"):
        with_hook, without = python(tmp_path, code, option), bare(tmp_path, code, option)
        # with -S nothing runs that could remove our folder from the path
        output = with_hook.stdout.replace(f"'{HOOKS}', ", "") if option == "-S" else with_hook.stdout
        assert (output, with_hook.stderr, with_hook.returncode) == (without.stdout, without.stderr, without.returncode)


def test_an_invalid_folder_costs_only_the_evidence(tmp_path: Path) -> None:
    work = tmp_path / "a" / "b" / "c"
    work.mkdir(parents=True)
    expected = bare(work, TRAINS).stderr
    for folder in ("/nowhere/at/all", "/proc/1/task", "/dev/null", "x" * 5000, "../..\udcff"):
        done = python(work, TRAINS, POSTMORTEM_HOOK=folder)
        assert (done.returncode, done.stderr) == (1, expected), folder


def test_an_invalid_rank_is_no_part_of_a_file_name(tmp_path: Path) -> None:
    for number, rank in enumerate(("-1", "9" * 40, "../../etc/passwd", "1\n2", "²")):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert python(folder, TRAINS, RANK=rank).returncode == 1
        (file,) = folder.iterdir()
        assert file.name.startswith("pid") and recorded(folder)[0]["rank"] is None


def test_a_process_that_is_no_rank_records_nothing(tmp_path: Path) -> None:
    """torchrun itself, a compiler, a tool in the same shell. Operators for PyTorch set RANK for the launcher too. If a
    rank handles the failure of a helper, torchrun must not find its error as the rank's."""
    for missing in ("RANK", "LOCAL_RANK"):
        python(tmp_path, TRAINS, **{missing: ""})
    code = "import subprocess, sys; print(subprocess.run([sys.executable, '-c', '1/0'], stderr=-1).returncode)"
    through = code.replace("[sys.executable, '-c', '1/0']", "sys.executable + ' -c 1/0; true', shell=True")
    for program in (code, through):
        assert python(tmp_path, program, TORCHELASTIC_ERROR_FILE=f"{tmp_path}/error.json").returncode == 0
    assert not list(tmp_path.iterdir())


def test_a_rank_below_a_shell_script_is_a_rank(tmp_path: Path) -> None:
    """`torchrun --no-python bind.sh`: the script has the rank's environment."""
    (tmp_path / "train.py").write_text(TRAINS)
    words = ["sh", "-c", f"{sys.executable} train.py; exit 1"]
    subprocess.run(words, cwd=tmp_path, env=hooked(tmp_path), stderr=subprocess.DEVNULL, timeout=60)
    assert recorded(tmp_path)[0]["rank"] == 1


def test_one_import_is_enough_for_ranks_of_another_launcher(tmp_path: Path) -> None:
    code = "import postmortem.hook, postmortem.hook as again\n1/0"
    done = bare(tmp_path, code, PYTHONPATH=str(ROOT), PYTHONDONTWRITEBYTECODE="1", OMPI_COMM_WORLD_RANK="3", RANK="")
    assert done.returncode == 1
    assert [record["rank"] for record in recorded(tmp_path / "postmortem-hook")] == [3]
    done = python(tmp_path, code, PYTHONPATH=f"{HOOKS}{os.pathsep}{ROOT}")  # installed already
    assert done.stderr.count("Traceback") == 1 and len(recorded(tmp_path)) == 1


RAISES_IN_A_FORK = "import os\npid = os.fork()\nif not pid: 1/0\nos.waitpid(pid, 0)"
CRASHES_IN_A_FORK = RAISES_IN_A_FORK.replace("1/0", "os.kill(os.getpid(), 11)")
HELPER = (
    "import subprocess, sys, time\n"
    "subprocess.run(['sh', '-c', '(sleep .2; exec \"$0\" -c 1/0) &', sys.executable])\n"
    "time.sleep(1)"
)


@pytest.mark.parametrize("code", [RAISES_IN_A_FORK, CRASHES_IN_A_FORK, HELPER], ids=["fork", "crash", "adopted"])
def test_a_failure_of_a_child_is_not_that_of_the_rank(tmp_path: Path, code: str) -> None:
    """The child of a shell that has ended belongs to another parent."""
    file = tmp_path / "error.json"
    done, without = python(tmp_path, code, TORCHELASTIC_ERROR_FILE=str(file)), bare(tmp_path, code)
    assert (done.returncode, done.stderr) == (0, without.stderr) and not list(tmp_path.iterdir())


def test_an_expensive_message_is_made_once_more_and_not_copied(tmp_path: Path) -> None:
    code = "import os\nclass E(Exception):\n def __str__(self): os.write(1, b'made'); return ''\nraise E()"
    file = {"TORCHELASTIC_ERROR_FILE": f"{tmp_path}/error.json"}
    assert bare(tmp_path, code).stdout + "made" == python(tmp_path, code, **file).stdout
    code = "import resource, sys; sys.excepthook(ValueError, ValueError('x' * 200_000_000), None)\n"
    code = f"import sys\nsys.__stderr__ = sys.stderr = None\n{code}print(resource.getrusage(0).ru_maxrss >> 10)"
    assert int(python(tmp_path, code, **file).stdout) < int(bare(tmp_path, code).stdout) + 20, "in MiB"


@needs("root", "unshare")
def test_a_full_disk_leaves_no_file_that_torchrun_cannot_read(tmp_path: Path) -> None:
    """It would end with a JSONDecodeError of its own instead of starting the ranks again."""
    script = f'mount -t tmpfs -o size=64k none {tmp_path}; dd if=/dev/zero of={tmp_path}/all 2>/dev/null; {sys.executable} -c "$0"; ls {tmp_path}'
    env = hooked(tmp_path, TORCHELASTIC_ERROR_FILE=f"{tmp_path}/error.json")
    words = ["unshare", "--mount", "sh", "-c", script, TRAINS]
    assert subprocess.run(words, env=env, capture_output=True, text=True, timeout=60).stdout == "all\n"


def test_a_device_is_no_error_file(tmp_path: Path) -> None:
    python(tmp_path, TRAINS, TORCHELASTIC_ERROR_FILE="/dev/null")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    python(tmp_path, TRAINS, TORCHELASTIC_ERROR_FILE=f"{tmp_path}/link")
    assert Path("/dev/null").is_char_device() and (tmp_path / "link").is_symlink()


def test_an_old_python_can_run_it_with_the_standard_library() -> None:
    assert (modules := [*HOOKS.glob("*.py")])
    for file in modules:
        imported = set()
        for node in ast.walk(ast.parse(file.read_text(), feature_version=(3, 8))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").split(".")[0])
        assert imported <= set(sys.stdlib_module_names) | {"sitecustomize", "postmortem_hook"}
