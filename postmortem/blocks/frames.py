"""The user's own code in a stack of frames, and the collective in which the stack waits."""

from __future__ import annotations

import sys

from postmortem.formats import forms

_REGEXES = forms.regexes("blocks/exceptions")
_LIBRARY = _REGEXES["library"]
_PACKAGES = ("torch", "numpy", "lightning", "transformers", "accelerate", "deepspeed", "ray")
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
    "init_process_group", "_store_based_barrier", "rendezvous", "_create_c10d_store", "_env_rendezvous_handler",
    "_new_process_group_helper",
}  # fmt: skip
_NO_WAIT = {"destroy_process_group", "_shutdown_backend", "abort", "get_rank", "get_world_size", "new_group"}
Frames = list[tuple[str, int, str]]


def is_own(file: str) -> bool:
    """Whether it is the user's code, not a library's. py-spy shortens paths: `torch/autograd/graph.py`."""
    top = file.split("/", 1)[0].removesuffix(".py")
    short = not file.startswith("/") and (top in sys.stdlib_module_names or (top in _PACKAGES and "/" in file))
    return not short and not _LIBRARY.search(file)


def code_line(frames: Frames) -> str | None:
    """The innermost frame of the user's own code as `train.py:412`."""
    for file, line, _ in reversed(frames):
        if is_own(file):
            return f"{file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{line}"
    return None


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
    init_process_group."""
    names = [func.split(".")[-1] for _, _, func in frames]
    if any(name in _INIT for name in names):
        return "init"
    for name in reversed(names):
        if name in _COLLECTIVES:
            return name
    return _by_its_module(frames) or ("backward" if any(name in _BACKWARD for name in names) else None)


def _by_its_module(frames: Frames) -> str | None:
    """A collective by the module that defines it, whatever its name: torch 2.13 has `all_gather_single`, `wait_tensor`
    and `_wait_batch_p2p`."""
    for file, _, func in frames:
        path, name = file.replace(chr(92), "/"), func.split(".")[-1]
        if path.endswith("torch/distributed/distributed_c10d.py") and name not in _NO_WAIT:
            return name
        if "torch/distributed/pipelining/" in path and "p2p" in name:
            return "recv"
    last = frames[-1] if frames else ("", 0, "")
    return "wait_tensor" if last[0].endswith("torch/distributed/_functional_collectives.py") else None


def collective_in(code: str) -> str | None:
    """The collective that a line of code calls: `dist.all_reduce(x)`."""
    names = (m[1] or m[2] for m in _REGEXES["collective-call"].finditer(code))
    return next((name for name in names if name in _COLLECTIVES | _BACKWARD), None)
