"""A stack of frames -> where the user's own code stood, and which collective it waited in."""

from __future__ import annotations

import re
import sys

_LIBRARY = re.compile(
    r"[\\/](?:site|dist)-packages[\\/]|/lib/python\d|<frozen |<string>|<stdin>|\.p(?:yx|xi)$|:\\.{1,200}\\[Ll]ib\\"
    r"|/torch/(?:nn|distributed|autograd|utils|_|multiprocessing)|lib/python\d|/bin/[\w-]+$"  # bin/torchrun
)


def is_own(file: str) -> bool:
    """Whether it is the user's code, and no library's."""
    return not _LIBRARY.search(file) and not _shortened(file)


def code_line(frames: list[tuple[str, int, str]]) -> str | None:
    """The innermost frame of the user's own code as `train.py:412`."""
    for file, line, _ in reversed(frames):
        if is_own(file):
            return f"{file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{line}"
    return None


# A handler runs on top of what the signal interrupted:
# lightning/pytorch/trainer/connectors/signal_connector.py even broadcasts in it
_HANDLER = re.compile(
    (
        r"(?:^|[._])(?:sig(?:nal|term|int|hup|usr\d)?_?(?:handler|notifier)|handle_?sig(?:nal|term|int)?"
        r"|on_sig(?:nal|term))"
    ),
    re.I,
)


def before_signal(frames: list[tuple[str, int, str]]) -> list[tuple[str, int, str]]:
    """The frames that a signal interrupted, without those of its handler: there the rank was.
    All frames where no handler ran."""
    for i, (file, _, func) in enumerate(frames):
        if i and (_HANDLER.search(func) or file.endswith("/signal_connector.py")):
            return frames[:i]
    return frames


# CPython Lib/: each prints what it was handed and goes on, so nothing dies of it
_PRINTS = re.compile(
    r"(?:^|[\\/])(?:multiprocessing[\\/](?:util\.py:_run_finalizers|resource_tracker\.py:main"
    r"|resource_sharer\.py:_serve)|weakref\.py:_exitfunc)$"
)


def is_only_printed(frames: list[tuple[str, int, str]]) -> bool:
    """Whether a part of Python's own library that clears up called the rest, and prints what is raised
    there."""
    return bool(frames) and bool(_PRINTS.search(f"{frames[0][0]}:{frames[0][2].rsplit('.', 1)[-1]}"))


_PACKAGES = ("torch", "numpy", "lightning", "transformers", "accelerate", "deepspeed", "ray")


def _shortened(file: str) -> bool:
    """py-spy cuts paths at the import root: `torch/autograd/graph.py`, `selectors.py`."""
    top = file.split("/", 1)[0].removesuffix(".py")
    return not file.startswith("/") and (top in sys.stdlib_module_names or (top in _PACKAGES and "/" in file))


_COLLECTIVES = {
    "all_reduce", "broadcast", "barrier", "all_gather", "all_gather_into_tensor", "_all_gather_base",
    "reduce_scatter", "reduce_scatter_tensor", "reduce", "gather", "scatter", "all_to_all",
    "all_to_all_single", "send", "recv", "isend", "irecv", "monitored_barrier", "broadcast_object_list",
    "all_gather_object", "gather_object", "scatter_object_list", "batch_isend_irecv",
    "_sync_params_and_buffers", "_sync_module_buffers", "_distributed_broadcast_coalesced", "_broadcast_coalesced",
    "_verify_param_shape_across_processes",
}  # fmt: skip
_BACKWARD = {"_engine_run_backward", "backward"}
_INIT = {
    "init_process_group",
    "_store_based_barrier",
    "rendezvous",
    "_create_c10d_store",
    "_env_rendezvous_handler",
    "_new_process_group_helper",
}


def collective_of(frames: list[tuple[str, int, str]]) -> str | None:
    """Which collective a stack waits in: `all_reduce`, … ; `backward` for DDP's own;
    `init` inside init_process_group."""
    names = [func.split(".")[-1] for _, _, func in frames]
    if any(name in _INIT for name in names):
        return "init"
    for name in reversed(names):
        if name in _COLLECTIVES:
            return name
    return "backward" if any(name in _BACKWARD for name in names) else None


_CALL = re.compile(r"\b(?:dist|distributed)\.(\w+)\(|\.(backward)\(")


def collective_in(code: str) -> str | None:
    """Which collective a line of code calls, where the frames below it are not shown: `dist.all_reduce(x)`."""
    names = (m[1] or m[2] for m in _CALL.finditer(code))
    return next((name for name in names if name in _COLLECTIVES | _BACKWARD), None)
