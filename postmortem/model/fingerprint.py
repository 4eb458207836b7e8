"""A fingerprint, equal for two incidents with the same category, pattern, line (without the parts that change from
run to run) and function of the user. Where hardware is at fault, a second part identifies it.

    fingerprint("python-exception", "python-exception", ["ValueError: label # outside of [0, #)"],
    "train.py:load") -> "2.02c7cb9fdcbc8149": the same for another sample, rank and host, at another time
    fingerprint("gpu-hardware", "xid-79-…", [], None, ["gpu-017", "0000:3b:00"])  ->
    "2.5b1e09a7c2d4f860-4f2a1b"

A history counts a failure on all hosts by the first part, on one host by both. Histories store these values, so
they must not change with the program: `tests/test_fingerprint.py` has old values, and SCHEME, which comes first,
goes up where they do (scheme 1 had no number).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence

SCHEME = "2"
HARDWARE = ("gpu-hardware",)  # categories in which the same on another host is another defect
LONGEST = 400
INTERRUPTED = "_utils/signal_handling.py"  # torch's handler of a worker's death: the rank was anywhere
COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>")
FEWEST = 3  # letters of a host's name that is removed from a line

_PATH = re.compile(r"(?:[A-Za-z][\w+.-]{1,12}:/|~|\.{0,2})(?:/[^\s/'\"<>()\[\]{},;]{1,255}){1,64}/?")
_V6 = r"(?<![\w:])(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4}(?:\.\d{1,3}){0,3}(?![\w:])"
_ADDRESS = re.compile(rf"\[?(?:{_V6}|(?:\d{{1,3}}\.){{3}}\d{{1,3}})\]?(?::\d+)?")
_RANK = re.compile(r"(?i)\b(?:local_)?ranks?\s{0,8}[:=#]?\s{0,8}\d+(?:\s{0,8}(?:,|and|-|–)\s{0,8}\d+)*")
_HEX = re.compile(r"\b0x[0-9a-fA-F]+\b|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{6,}\b")
_NUMBER = re.compile(r"[-+]?\d[\d_.]*(?:[eE][-+]?\d+)?")
_LIST = re.compile(r"[\[({][^\[\](){}]*#[^\[\](){}]*[\])}]")
_PYTHON = re.compile(r"python[\d.]*|pt_main_thread")  # torch names the main thread of a rank from 2.8 on
_PLUMBING = re.compile(r"wrapper|_call_impl$")  # of decorators, and of torch.nn.Module, which renames it


def fingerprint(
    category: str | None, pattern: str, lines: Sequence[str], frame: str | None, hardware: Iterable[str] = ()
) -> str:
    """Return the whole fingerprint. `hardware` are the names of the host and the GPU, where hardware is at fault."""
    cause = _hashed(SCHEME, category or "", pattern, *lines, frame or "")[:16]
    return marked(f"{SCHEME}.{cause}", hardware if category in HARDWARE else ())


def marked(cause: str, hardware: Iterable[str]) -> str:
    """Return a fingerprint's first part with the mark of these names as its second."""
    names = sorted(hardware)
    return f"{cause}-{_hashed(*names)[:6]}" if names else cause


def _hashed(*parts: str) -> str:
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "backslashreplace")).hexdigest()


def normalised(line: str, hosts: Iterable[str] = ()) -> str:
    """Return a line without paths, addresses, numbers, ranks, hosts, and the items of lists.

    "rank 3 on node-b: norms [7.47, 7.47, 3.59] in /data/part-7.bin" -> "rank # on @: norms [#] in /"
    """
    line = line[: 4 * LONGEST]
    for name in sorted({n for n in hosts if len(n) >= FEWEST}, key=len, reverse=True):
        line = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "@", line)
    line = _ADDRESS.sub("@", _PATH.sub("/", line))
    line = _NUMBER.sub("#", _HEX.sub("#", _RANK.sub("rank #", line)))
    while (shorter := _LIST.sub("[#]", line)) != line and len(shorter) < len(line):
        line = shorter
    return " ".join(line.split())[:LONGEST]


def program(comm: str) -> str:
    """Return a program by the kernel's name of a process: every Python is one, a data loader's worker another."""
    return "python" if _PYTHON.fullmatch(comm) else normalised(comm)


def frame(code: str, stacks: Iterable[Mapping[str, object]], innermost_first: bool = False, call: bool = True) -> str:
    """Return `train.py:load` for `train.py:26`: functions outlive the lines above them. With the function that is
    called there, which distinguishes two waits of one function: `train.py:main>barrier`. The file alone where no
    stack has the line."""
    file, _, line = code.rpartition(":")
    for fields in stacks:
        found = fields.get("frames")
        frames = [f for f in found if len(f) == 3] if isinstance(found, tuple) else []
        frames = frames if innermost_first else frames[::-1]
        if frames and str(frames[0][0]).endswith(INTERRUPTED):
            return ""
        for at, (path, number, _) in enumerate(frames):
            if str(number) == line and str(path).rpartition("/")[2] == file:
                called = [n for f in frames[:at] if not _PLUMBING.search(n := _short(f[2]))] if call else []
                return f"{file}:{_written(frames[at:])}" + (f">{called[-1]}" if called else "")
    return file


def _written(frames: Sequence[Sequence[object]]) -> str:
    """Return the enclosing function: a comprehension has a frame of its own before Python 3.12 only."""
    names = [_short(f[2]) for f in frames if f[0] == frames[0][0]]
    return next((n for n in names if n not in COMPREHENSIONS), names[0])


def _short(function: object) -> str:
    """Return `fetch` for py-spy's `Shards.fetch`, as in a traceback."""
    return str(function).rpartition(".")[2]
