"""The user's own code in a stack of frames, and the collective in which the stack waits."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import islice

from postmortem.formats.excerpt import Line
from postmortem.model.details import Details
from postmortem.model.digits import whole
from postmortem.privacy import cut
from postmortem.system import forms

_REGEXES = forms.regexes("formats/exceptions")
_LIBRARY = _REGEXES["library"]
_PACKAGES = ("torch", "numpy", "lightning", "transformers", "accelerate", "deepspeed", "ray")
_NAMES = {name: frozenset(row["names"]) for name, row in forms.rows("formats/exceptions").items() if "names" in row}
_COLLECTIVES, _BACKWARD = _NAMES["collectives"], _NAMES["backward"]
Frames = list[tuple[str, int, str]]


def frame_of(m: re.Match[str]) -> tuple[str, int, str]:
    """A frame from a match with the groups file, line and func."""
    return m["file"], whole(m["line"]), (m["func"] or "").strip()[:200]


def is_own(file: str) -> bool:
    """Whether it is the user's code, not a library's. py-spy shortens paths: `torch/autograd/graph.py`."""
    top = file.split("/", 1)[0].removesuffix(".py")
    short = not file.startswith("/") and (top in sys.stdlib_module_names or (top in _PACKAGES and "/" in file))
    return not short and not _LIBRARY.search(file)


def code_line(frames: Frames) -> str | None:
    """The innermost frame of the user's own code as `train.py:412`."""
    for file, line, _ in reversed(frames):
        if is_own(file):
            name = file.replace("\\", "/").rsplit("/", 1)[-1]
            return f"{name}:{line}"
    return None


def stack_fields(frames: Frames) -> Details:
    """The fields of every event of kind `stack`; `frames` most recent first."""
    return {
        "frames": tuple(frames[:60]),
        "own": tuple(is_own(file) for file, _, _ in frames[:60]),
        "code": code_line(frames[::-1]),
        "collective": collective_of(frames[::-1]),
    }


def exception_fields(kind: str, message: str, line: str, frames: Frames) -> Details:
    """The fields of every event of kind `exception`; `frames` most recent last."""
    outside = before_signal(frames)
    return {
        "type": kind,
        "message": cut(message, 2000),
        "line": cut(line, 2000),
        "frames": tuple(frames[-60:]),
        "code": code_line(outside),
        "collective": collective_of(outside),
    }


def is_wrapper(kind: str) -> bool:
    """Whether a class of exceptions only reports that another process failed."""
    return _REGEXES["wrapper"].fullmatch(kind.split("(")[0].rsplit(".", 1)[-1]) is not None


def before_signal(frames: Frames) -> Frames:
    """The frames that a signal interrupted, without those of its handler. Lightning's even broadcasts
    (lightning/pytorch/trainer/connectors/signal_connector.py)."""
    for i, (file, _, func) in enumerate(frames):
        if i and (_REGEXES["signal-handler"].search(func) or file.endswith("/signal_connector.py")):
            return frames[:i]
    return frames


def is_only_printed(frames: Frames) -> bool:
    """Whether a cleanup function of Python's library called the rest: it prints an exception and continues."""
    return bool(frames) and bool(_REGEXES["only-printed"].search(f"{frames[0][0]}:{frames[0][2].rsplit('.', 1)[-1]}"))


def collective_of(frames: Frames) -> str | None:
    """The collective in which a stack waits: `all_reduce`; `backward` for DDP's own; `init` inside of
    init_process_group. torch 2.13 has others, known by their module: `all_gather_single`, `_wait_batch_p2p`."""
    names = [func.split(".")[-1] for _, _, func in frames]
    if not _NAMES["init"].isdisjoint(names):
        return "init"
    named = (i for i in reversed(range(len(names))) if names[i] in _COLLECTIVES)
    if found := next((names[i] for i in named if not _REGEXES["pipe"].search(frames[i][0])), None):
        return found
    for (file, _, _), name in zip(frames, names, strict=True):
        path = file.replace("\\", "/")
        if path.endswith("torch/distributed/distributed_c10d.py") and name not in _NAMES["no-wait"]:
            return name
        if "torch/distributed/pipelining/" in path and "p2p" in name:
            return "recv"
        if path.endswith("torch/distributed/_functional_collectives.py") and not name.startswith("_"):
            return "wait_tensor"
    return None if _BACKWARD.isdisjoint(names) else "backward"


def collective_in(code: str) -> str | None:
    """The collective that a line of code calls: `dist.all_reduce(x)`."""
    names = (m[1] or m[2] for m in _REGEXES["collective-call"].finditer(code))
    return next((name for name in names if name in _COLLECTIVES | _BACKWARD), None)


# ── tracebacks of rich (rich/traceback.py), as lines that Python would print ────────────────────────────────

MESSAGE = 12  # lines of one broken message


def opens_box(body: str) -> bool:
    """Whether a line is the upper edge of such a box."""
    return _REGEXES["box-title"].match(body.lstrip()) is not None


def unboxed(title: str, lines: Iterator[Line]) -> Iterator[Line]:
    """The lines below the upper edge `title`, as Python prints them."""
    row = ""
    for line in lines:
        body = line.envelope.body.strip()
        if body.startswith(("╰", "└", "+-")):
            if (first := next(lines, None)) is not None:
                yield from _boxed_message(first, lines, len(title.strip()))
            yield from lines
            return
        if body.startswith(("│", "|")):
            inside = body.strip("│|").strip()
            is_code = _REGEXES["box-code"].match(inside) is not None and (not row or "│" in inside)
            if not inside or inside[0] in "╭╰│" or len(row) > 1000 or is_code:
                row = ""
                continue
            row += inside if not row or not inside.startswith("in ") else f" {inside}"
            if place := _REGEXES["box-place"].match(row):
                yield line.with_body(f'  File "{place["file"]}", line {place["line"]}, in {place["func"]}')
                row = ""
        elif body:
            return


def _boxed_message(first: Line, lines: Iterator[Line], width: int) -> Iterator[Line]:
    """The exception's line, joined with the lines into which the box's width broke it."""
    body = last = first.envelope.body.strip()
    behind: list[Line] = []
    for line in islice(lines, MESSAGE):
        more = line.envelope.body.strip()
        if not more or line.envelope.stamp is not None or len(last) + 1 + len(more.partition(" ")[0]) <= width:
            behind.append(line)
            break
        body, last = f"{body} {more}", more
    yield from (first.with_body(body), *behind)
