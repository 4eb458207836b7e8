"""What a run says that it was started with: versions, and settings by name.

    process group ready: rank 0 of 4, torch 2.5.1          versions  torch: 2.5.1
    Namespace(lr=0.1, batch_size=64, run_name='x-17')      settings  lr: 0.1, batch_size: 64
    NCCL_IB_HCA set by environment to mlx5_0               settings  NCCL_IB_HCA: mlx5_0

A setting is told once in a file. What differs between two healthy runs of one job is none: process ids,
ports, times, names of the run, where it writes, measured values.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from postmortem.privacy.assigned import secret_key
from postmortem.reading.distinct import Once

Values = dict[str, set[int | None]]  # a value, and the ranks that tell it
Told = Mapping[str, Values]
MOST = 2000  # names
_VERSION = re.compile(
    r"(?<![\w.-])(?P<name>torch|pytorch|torchvision|torchaudio|cuda|cudnn|nccl|rccl|rocm|hip|python"
    r"|transformers|deepspeed|megatron(?:[-_]core)?|numpy|nvidia driver|driver|lightning|accelerate"
    r"|vllm|ray|triton|xformers|flash[-_]attn|transformer[-_]engine|apex|peft|datasets|libfabric|aws-ofi-nccl)(?:\.__version__)?"
    r"(?:[ _]runtime)?[ _]?(?:version)?[\"']?(?: ?[:=]{1,2} ?| |-|/)(?:version )?[\"']?v?"
    r"(?P<version>\d{1,4}\.\d{1,4}(?:[.+][\w.+-]{1,40})?)"
    r"(?! ?(?:ms|s|it|sec|seconds|[KMGT]i?B|x|%)\b|[%\w/])",
    re.IGNORECASE,
)
_SAME = {"pytorch": "torch", "nvidia driver": "driver"}
_GPU = re.compile(
    r"\b(?:NVIDIA|Tesla|AMD Instinct) ((?:GeForce |Quadro )?(?:RTX|GB|GH|MI|[AHBLVTP])[ -]?\d{2,4}\w*"
    r"(?:[ -](?:SXM\d?|PCIe|NVL|HBM\d\w?|\d{1,3} ?GB)){0,3})"
)
_PAIR = re.compile(  # key=value, 'key': value, --key value, Megatron's `key ........ value`
    r"(?<![\w./-])(?:--(?P<flag>[A-Za-z][\w-]{1,40})[= ](?!--)|['\"](?P<quoted>[A-Za-z_][\w.-]{1,40})['\"]: ?"
    r"|(?P<dotted>[a-z]\w{1,40}) \.{3,60} |(?P<name>[A-Za-z_][\w.]{1,40}) ?=(?![=>]) ?)"
    r"(?P<value>'[^']{0,80}'|\"[^\"]{0,80}\"|\[[^\[\]]{0,80}\]|[^\s,;(){}'\"\[\]]{1,120})"
)
_SET = re.compile(
    r"\b(?P<name>(?:NCCL|TORCH|GLOO|UCX|FI)_[A-Z0-9_]{2,40}) set (?:by environment )?to "
    r"(?P<value>[^\s,;]{1,80})"
)
_DECLARED = re.compile(r"(?P<name>[A-Z_][A-Z0-9_]{1,60})=(?P<value>.{0,200})")
_RELEVANT = re.compile(  # of an environment, what reaches the training
    r"(?:TORCH|PYTORCH|NCCL|RCCL|GLOO|UCX|FI|OMP|MKL|CUDA|CUBLAS|NVIDIA|HIP|ROCR|XLA|TRITON|TF32|HF|ACCELERATE"
    r"|DEEPSPEED|FSDP|PYTHON|LD|MALLOC)_\w+|PYTHONPATH|PATH|VIRTUAL_ENV|CONDA_PREFIX|LANG|TZ"
)
_NOISE = re.compile(
    r"pid|tid|uuid|uid|gid|id|port|host|hostname|addr|address|master|ip|url|uri|endpoint|comm|commid|commhash"
    r"|time|timestamp|date|elapsed|took|duration|seconds|secs?|ms|eta|speed|throughput|loss|acc|accuracy|ppl"
    r"|perplexity|norm|score|metric|mem|memory|free|used|alloc|allocated|reserved|bytes|world"
    r"|rank|local|node|seq|seqnum|step|iter|iteration|epoch|it|numel|numelin|numelout|opcount|last|enqueued"
    r"|completed|workinfo|bus|busid|fd|err|error|errno|code|exitcode|signal|status|thread|key|file|what|hash"
    r"|digest|sha|nonce|seed|job|jobid|run|rdzv|name|log|logs|out|output|outdir|save|ckpt|checkpoint|exp|experiment"
    r"|tmp|tmpdir|temp|cache|wandb|work|pwd|oldpwd|user|home|shlvl|display|ssh"
)
_PARTS = re.compile(r"[_.-]+")
_BARE = frozenset({"size", "sizes", "length", "len", "count", "total", "world_size"})  # of nobody knows what
_KEPT = frozenset({"max_steps", "train_steps", "num_epochs", "nproc_per_node", "warmup_steps", "max_time"})
_MEASURED = re.compile(r"[-+]?\d*\.\d{4,}(?:e[-+]?\d+)?|[-+]?\d+\.\d+e[-+]?\d+", re.IGNORECASE)
_NAMELESS = re.compile(r"0x[0-9a-f]|<|\b[0-9a-f]{12,}\b|\d\d:\d\d:\d\d|\d{4}-\d\d-\d\d")
_PLAIN_END = re.compile(r"[.:]+$")


def versions(once: Iterable[Once]) -> Told:
    """What runs: libraries and GPUs, by name."""
    found: dict[str, Values] = {}
    for said in once:
        if said.kind == "environment":
            continue
        for m in _VERSION.finditer(said.text):
            name = m["name"].lower().replace("-", "_")
            _add(found, _SAME.get(name, name), _PLAIN_END.sub("", m["version"]), said.rank)
        for m in _GPU.finditer(said.text):
            _add(found, "GPU", m[1], said.rank)
    return found


def settings(once: Iterable[Once]) -> Told:
    """What it was told to do, by name; what one rank tells in two ways is left out."""
    found: dict[str, Values] = {}
    for said in once:
        for name, value in _pairs(said):
            _add(found, name, value, said.rank)
    return {name: values for name, values in found.items() if _clear(values)}


def _add(found: dict[str, Values], name: str, value: str, rank: int | None) -> None:
    if name in found or len(found) < MOST:
        found.setdefault(name, defaultdict(set))[value].add(rank)


def _clear(values: Values) -> bool:
    ranks = [rank for told in values.values() for rank in told]
    return len(ranks) == len(set(ranks))


def _pairs(said: Once) -> Iterator[tuple[str, str]]:
    if said.kind == "environment":
        m = _DECLARED.match(said.text)
        if m and _RELEVANT.fullmatch(m["name"]) and not _is_noise(m["name"]) and not secret_key(m["name"]):
            yield m["name"], m["value"]
        return
    for m in _SET.finditer(said.text):
        yield m["name"], _PLAIN_END.sub("", m["value"])
    for m in _PAIR.finditer(said.text):
        name = m["flag"] or m["quoted"] or m["dotted"] or m["name"]
        value = _PLAIN_END.sub("", m["value"].strip("'\""))
        name = name.replace("-", "_")
        if value and not secret_key(name) and not _is_noise(name) and not _is_measured(value):
            yield name, value


def _is_noise(name: str) -> bool:
    plain = name.lower().strip("_")
    if plain in _KEPT or plain in _BARE:
        return plain in _BARE
    return any(_NOISE.fullmatch(part.removesuffix("s")) or _NOISE.fullmatch(part) for part in _PARTS.split(plain))


def _is_measured(value: str) -> bool:
    """Whether it is a measured number, or an id that another run has otherwise."""
    return bool(_MEASURED.fullmatch(value) or _NAMELESS.search(value))
