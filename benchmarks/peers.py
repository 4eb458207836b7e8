"""The accuracy of this program beside simpler methods, on folders of labeled cases.

    python benchmarks/peers.py FOLDER ... [--misses]
    python benchmarks/peers.py sample_logs --write docs/accuracy.md       the page, with docs/accuracy.yaml

A case is CASE/logs/ and CASE/truth.json, as described in sample_logs/README.md. Keys: `outcomes`, `categories`,
`ranks`, `hosts`, `gpus`, and optional: `exit_code` of the job, `shows`, a regular expression for the line that an
answer rests on. A folder with labels.jsonl, or corpus/labels.jsonl, is read as the corpus of GPUAlert
(github.com/Parv-01/gpualert-eval).

The methods:

    torchrun     the first block "Root Cause (first observed failure)" in the logs: its rank, exit code and traceback
    first error  the first line with an error word, in the order of the paths, as `grep -rE … | head -1` prints it
    last error   the last one
    exit code    the job's where it is labeled, else the first exit code other than 0 in the logs; it names no rank
    postmortem   this program

A line's category is the first of KINDS that matches it, its rank the one in the line or in the path. A method that
finds nothing reports a healthy run.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from postmortem.analyze import Options, analyze  # noqa: E402
from postmortem.errors import PostmortemError  # noqa: E402

FAILED = ("incident", "recovered")
ERROR = re.compile(
    r"[A-Za-z](Error|Exception)\b|\b(ERROR|FATAL|[Ff]atal|Killed|[Oo]ut of memory|[Ss]egmentation fault|[Tt]imed out"
    r"|[Tt]imeout|exitcode|CANCELLED)\b|\bnan\b"
)
KINDS = (  # the category of a line: the first that matches
    ("gpu-oom", r"CUDA out of memory|OutOfMemoryError"),
    ("host-oom", r"Out of memory: Kill|cgroup out of memory|oom[-_]kill|MemoryError|bad_alloc"),
    ("shared-memory", r"shared memory|/dev/shm|[Bb]us error"),
    ("gpu-hardware", r"\bXid\b|uncorrectable ECC|fallen off the bus"),
    ("gpu-fault", r"CUDA error|illegal memory access|device-side assert"),
    ("ddp-usage", r"Expected to have finished reduction|mark a variable ready"),
    ("checkpoint", r"state_dict|PytorchStreamReader|checkpoint"),
    ("storage", r"No space left|Input/output error|Read-only file system|Stale file handle"),
    ("resource-limit", r"Too many open files|Resource temporarily unavailable|Cannot allocate memory"),
    ("rendezvous", r"[Rr]endezvous|TCPStore|EADDRINUSE|DistStoreError|DistNetworkError"),
    ("collective-mismatch", r"mismatch"),
    ("peer-lost", r"Connection (closed|reset) by peer"),
    ("hang", r"[Ww]atchdog caught|[Tt]imed out|[Tt]imeout"),
    ("network", r"NCCL|gloo|No route to host|Network is unreachable"),
    ("environment", r"ModuleNotFoundError|ImportError|No module named"),
    ("scheduler", r"TIME LIMIT|PREEMPTION|CANCELLED"),
    ("native-crash", r"[Ss]egmentation fault|SIGSEGV|SIGABRT|SIGBUS|SIGFPE|SIGILL"),
    ("external-signal", r"SIGKILL|SIGTERM|SIGINT|KeyboardInterrupt|Killed"),
    ("numerics", r"\bnan\b"),
)
SIGNALS = dict.fromkeys((4, 6, 7, 8, 11), "native-crash") | dict.fromkeys((2, 9, 15), "external-signal")
EXIT_CODE = re.compile(r"(?i)exit(?:ed with)?[ _]?(?:code|status)\s*[:=]?\s*(-?\d+)")
RANK = re.compile(r"\[(?:rank|default)(\d+)\]|\b[Rr]ank (\d+)|local_rank: (\d+)")
RANK_IN_PATH = re.compile(r"rank[-_]?(\d+)[^/]*$|/(\d+)/std(?:err|out)\.log$")
ROOT_CAUSE = "Root Cause (first observed failure)"
BLOCK = re.compile(r"rank\s*: (\d+) .*?exitcode\s*: (-?\d+)(.*)", re.DOTALL)
GPUALERT: Mapping[str, tuple[str, str]] = {  # its label: accepted categories, and the words of the line that shows it
    "cuda_oom": ("gpu-oom", "out of memory"),
    "nccl": ("network hang peer-lost collective-mismatch", "NCCL"),
    "cuda_runtime": ("gpu-fault", "CUDA error|device-side assert|CUDA kernel failed"),
    "ram_oom": ("host-oom", "MemoryError|bad_alloc"),
    "segfault": ("native-crash", "(?i)segmentation fault|SIGSEGV|native-crash"),
    "file_not_found": ("python-exception environment storage checkpoint", "FileNotFoundError|No such file"),
    "permission": ("python-exception environment storage checkpoint", "PermissionError|Permission denied"),
    "missing_module": ("environment python-exception", "ModuleNotFoundError|ImportError"),
    "div_zero": ("python-exception", "ZeroDivisionError"),
    "device_mismatch": ("python-exception", "same device"),
    "nan_loss": ("numerics", "(?i)nan"),
    "oom_killer": ("host-oom", "Out of memory: Killed|(?i:oom)"),
    "traceback": ("python-exception environment", "[A-Za-z]Error"),
    "assertion": ("python-exception", "AssertionError"),
    "runtime_error": ("python-exception environment checkpoint", "RuntimeError"),
}
HEAD = """# Accuracy

`python benchmarks/peers.py sample_logs --write docs/accuracy.md` writes this page; `--misses` lists every wrong answer.
Intervals are 95 % (Wilson). The docstring of the script defines the methods.

## Known logs

The {count} recorded runs of [sample_logs](../sample_logs/README.md), measured on {now}. The program was developed on
them, so its row is a regression test and not an estimate for other logs. The labels are from the injected failures.
"""
LOOKS = """## First looks

Logs outside the repository, labeled before the first run; known ones are marked. Their figures are in `accuracy.yaml`;
earlier ones are in [confidence](confidence.md#how-often-it-is-right). Only the row of GPUAlert's public corpus can be
repeated with the script: the labels of the others are not in this repository.
"""


class Case(NamedTuple):
    name: str
    logs: Path  # a folder, or one file
    truth: Mapping[str, Any]


class Answer(NamedTuple):
    """A verdict in the terms of truth.json, and the text it rests on."""

    outcome: str = "healthy"
    category: str | None = None
    ranks: Sequence[int] = ()
    hosts: Sequence[str] = ()
    gpus: Sequence[str] = ()
    confidence: str | None = None
    text: str = ""


class Row(NamedTuple):
    case: Case
    answer: Answer
    exact: bool
    culprit: bool | None  # None where no rank is labeled


def cases(folder: Path) -> Iterator[Case]:
    """Yield the cases of a folder, in the order of their names."""
    labels = next((p for p in (folder / "labels.jsonl", folder / "corpus" / "labels.jsonl") if p.is_file()), None)
    if labels is None:
        for file in sorted(folder.glob("*/truth.json")):
            yield Case(file.parent.name, file.parent / "logs", json.loads(file.read_text(encoding="utf-8")))
        return
    logs = {path.stem: path for path in labels.parent.glob("*/*.log")}
    for label in map(json.loads, labels.read_text(encoding="utf-8").splitlines()):
        categories, shows = GPUALERT[label["mode"]]
        truth = {"outcomes": ["incident"], "categories": categories.split(), "shows": shows}
        yield Case(label["id"], logs[label["id"]], truth | {"exit_code": label["true_exit_code"]})


def lines(case: Case) -> Iterator[tuple[str, str]]:
    """Yield (path, line) of the text files in the order of their paths, as grep reads them."""
    files = [case.logs] if case.logs.is_file() else sorted(p for p in case.logs.rglob("*") if p.is_file())
    for path in files:
        data = path.read_bytes()
        if b"\0" not in data:
            for line in data.decode("utf-8", "replace").splitlines():
                yield str(path), line


def kind_of(text: str, code: int = 1) -> str:
    found = next((kind for kind, words in KINDS if re.search(words, text)), None)
    return found or SIGNALS.get(-code if code < 0 else code - 128, "python-exception")


def by_line(path: str, line: str) -> Answer:
    found = RANK.search(line) or RANK_IN_PATH.search(path)
    ranks = [int(number) for number in found.groups() if number] if found else []
    return Answer("incident", kind_of(line), ranks, text=line)


def torchrun(case: Case) -> Answer:
    block: list[str] = []
    for _, line in lines(case):
        if block and "=====" in line:
            break
        if block or ROOT_CAUSE in line:
            block.append(line)
    found = BLOCK.search("\n".join(block))
    if found is None:
        return Answer()
    errors = [line for line in found[3].splitlines() if re.search(r"[A-Za-z](Error|Exception)\b", line)]
    text = errors[-1] if errors else found[3].splitlines()[0]
    return Answer("incident", kind_of(text, int(found[2])), [int(found[1])], text=text)


def first_error(case: Case) -> Answer:
    return next((by_line(*row) for row in lines(case) if ERROR.search(row[1])), Answer())


def last_error(case: Case) -> Answer:
    found = [row for row in lines(case) if ERROR.search(row[1])]
    return by_line(*found[-1]) if found else Answer()


def exit_code(case: Case) -> Answer:
    code = case.truth.get("exit_code")
    if code is None:
        codes = (int(number) for _, line in lines(case) for number in EXIT_CODE.findall(line))
        code = next((code for code in codes if code), 0)
    return Answer("incident", kind_of("", code), text=SIGNALS.get(-code, "")) if code else Answer()


def postmortem(case: Case) -> Answer:
    try:
        verdict = analyze([str(case.logs)], Options(workers=1)).document["verdict"]
    except PostmortemError as e:
        return Answer("undetermined", text=str(e))
    who = verdict["culprit"]
    text = "\n".join([verdict["headline"], *(item["text"] for item in verdict["evidence"][:1])])
    named = (who["ranks"], who["hosts"], who["gpus"])
    return Answer(verdict["outcome"], verdict["category"], *named, verdict["confidence"], text)


METHODS: Mapping[str, Callable[[Case], Answer]] = {
    "torchrun": torchrun,
    "first error": first_error,
    "last error": last_error,
    "exit code": exit_code,
    "postmortem": postmortem,
}


def judge(case: Case, answer: Answer) -> Row:
    """Compare an answer with the truth. `exact`: outcome, category, ranks, and the hosts and GPUs that it names."""
    truth, failed = case.truth, answer.outcome in FAILED
    culprit = None
    if truth.get("ranks") is not None and set(truth["outcomes"]) & set(FAILED):
        culprit = set(answer.ranks) <= set(truth["ranks"]) and bool(answer.ranks) == bool(truth["ranks"])
    kind = not failed or (
        answer.category in truth["categories"] and bool(re.search(truth.get("shows", ""), answer.text))
    )
    places = ((truth.get("hosts"), answer.hosts), (truth.get("gpus"), answer.gpus))
    elsewhere = any(wanted and not set(named) <= set(wanted) for wanted, named in places)
    exact = answer.outcome in truth["outcomes"] and kind and culprit is not False and not elsewhere
    return Row(case, answer, exact, culprit)


def wilson(right: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (E. B. Wilson, 1927)."""
    z = 1.959964
    middle, spread = right + z * z / 2, z * sqrt(right * (of - right) / of + z * z / 4)
    return max(0.0, (middle - spread) / (of + z * z)), min(1.0, (middle + spread) / (of + z * z))


def share(right: int, of: int) -> str:
    """Return `72 of 74 · .973 (.907-.993)`, or a dash without cases."""
    if not of:
        return "–"
    figures = [f"{x:.3f}".removeprefix("0") for x in (right / of, *wilson(right, of))]
    return f"{right} of {of} · {figures[0]} ({figures[1]}–{figures[2]})"


def table(rows: Mapping[str, Sequence[Row]]) -> str:
    """Return a row for each method."""
    out = ["| method | reports a failure | exact | culprit ranks right | established right |", "|---|---|---|---|---|"]
    for method, own in rows.items():
        culprit = [row.culprit for row in own if row.culprit is not None]
        sure = [row.exact for row in own if row.answer.confidence == "established"]
        parts = [share(sum(flags), len(flags)) for flags in ([row.exact for row in own], culprit, sure)]
        out.append(f"| {method} | {sum(row.answer.outcome in FAILED for row in own)} | {' | '.join(parts)} |")
    return "\n".join(out)


def misses(rows: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    for method, row in ((method, row) for method, own in rows.items() for row in own if not row.exact):
        truth, answer = row.case.truth, row.answer
        wanted = f"{'|'.join(truth['outcomes'])} {'|'.join(truth['categories'])} ranks {truth.get('ranks')}"
        named = f"{answer.outcome} {answer.category} ranks {list(answer.ranks)}"
        yield f"{method}: {row.case.name}: {named}; labeled {wanted}"


def measured(folders: Iterable[Path]) -> dict[str, list[Row]]:
    every = [case for folder in folders for case in cases(folder)]
    return {name: [judge(case, method(case)) for case in every] for name, method in METHODS.items()}


def page(rows: Mapping[str, Sequence[Row]], looks: Sequence[Mapping[str, Any]]) -> str:
    """Return docs/accuracy.md."""
    now = datetime.now(UTC).date()
    own = [f"- {line}" for line in misses({"postmortem": rows["postmortem"]})] or ["Wrong answers of postmortem: none."]
    return "\n".join(
        [HEAD.format(count=len(rows["postmortem"]), now=now), table(rows), "", *own, "", *first_looks(looks), ""]
    )


def first_looks(looks: Iterable[Mapping[str, Any]]) -> list[str]:
    out = [LOOKS, "| logs | when | exact | established right | misses |", "|---|---|---|---|---|"]
    for look in looks:
        right, sure = share(look["right"], look["cases"]), share(*look.get("established", (0, 0)))
        out.append(f"| {look['logs']} | {look['date']} | {right} | {sure} | {look['misses']} |")
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--misses", action="store_true", help="list the answers of each method that are not exact")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the page, with PAGE's first looks in .yaml")
    given = parser.parse_args()
    rows = measured(given.folders)
    print(table(rows))
    print("\n".join(misses(rows)) if given.misses else "")
    if given.write:
        looks = yaml.safe_load(given.write.with_suffix(".yaml").read_text(encoding="utf-8"))["looks"]
        given.write.write_text(page(rows, looks), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
