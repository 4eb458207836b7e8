"""What can be re-created here, and what each scenario proves.
Plain data: nothing is imported but the standard library.

In: nothing. Out: `SCENARIOS`, one frozen `Scenario` for each, and `scenario(id)`. A row reads as

    slow-rank: scenarios/slow_rank.py, four ranks under torchrun, proves `rank-late-to-collective` (hang)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from postmortem.replay.isolate import Wants

Launcher = Literal["torchrun", "plain", "spawn", "two-hosts", "two-hosts-torchrun"]
# the rank given by --rank; not compared; nobody (a named rank would be wrong)
Culprit = Literal["rank", "any", "nobody"]
Act = Literal["", "kill-rank", "stop-rank", "term-launcher", "interrupt-launcher", "hang-up-launcher", "kill-launcher"]
Value = str | int | float
Arguments = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Start:
    """What is odd about how the rank at fault is started, or all of them (`all_env`).
    A value of None unsets a variable.

    Values may hold {world_size_plus_1}, {other_rank} and {closed_port}.
    """

    env: Mapping[str, str | None] = field(default_factory=dict)
    all_env: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    absent: bool = False
    port_taken: bool = False


@dataclass(frozen=True, slots=True)
class Fallback:
    """How a scenario shows itself where this machine lacks what it needs, and what is lost by it."""

    arguments: Arguments
    pattern: str
    lost: str


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way to fail (or not to), with what an analysis of its logs must say."""

    id: str
    title: str
    pattern: str | None
    category: str | None
    culprit: Culprit = "rank"
    launcher: Launcher = "torchrun"
    nproc: int = 3
    backend: str = "gloo"
    needs: tuple[str, ...] = ()  # of root, gpu, cgroup, netns, kernel-log
    env: Mapping[str, str] = field(default_factory=dict)  # in every process
    save: str = ""  # another layout of the logs than the launcher's usual one
    wants: Wants = Wants()
    start: Start = Start()
    act: Act = ""
    arguments: Arguments = field(default_factory=dict)
    # other patterns it can show, and the arguments that make it so
    proves: Mapping[str, Arguments] = field(default_factory=dict)
    fallback: Fallback | None = None
    also: tuple[str, ...] = ()  # categories that are right as well
    outcomes: tuple[str, ...] = ("incident",)
    evidence: tuple[str, ...] = ()  # regular expressions of the lines a reader would underline
    look: bool = False  # worth a look at the live processes (ps, py-spy) once the fault is there
    patience_s: float = 75.0  # after that the run is ended from outside

    @property
    def module(self) -> str:
        return self.id.replace("-", "_")

    @property
    def gloo_only(self) -> bool:
        """Is it a failure of gloo's own, that NCCL cannot show?"""
        return (self.pattern or "").startswith("gloo-") or self.id == "wrong-interface"

    @property
    def told_by_a_crash(self) -> bool:
        """Do the peers learn of it at once, by a lost connection and the launcher?
        Else they wait until a time-out; NCCL's always do."""
        waited = {"hang", "rendezvous", "network", "collective-mismatch"}
        stopped = self.launcher == "torchrun" and self.backend == "gloo" and "gpu" not in self.needs
        return stopped and not waited & {self.category, *self.also}

    @property
    def failing(self) -> bool:
        return self.outcomes != ("healthy",)


OOM_LINE = r"Killed process {pid} \("
HEALTHY = ("healthy",)

SCENARIOS: tuple[Scenario, ...] = (
    # memory
    Scenario("host-oom-rank", "one rank is killed by the kernel for memory", "kernel-oom-killed-process",
             "host-oom", needs=("root", "cgroup", "kernel-log"), wants=Wants(memory_mb=1000),
             evidence=(OOM_LINE,), proves={"cpu-allocator-out-of-memory": {"limit_mb": 400},
                                           "rank-killed-in-full-cgroup": {"kernel_log": 0}},
             fallback=Fallback({"limit_mb": 400}, "cpu-allocator-out-of-memory",
                               "an address-space limit stands in for the memory cgroup: "
                               "the allocation is refused, nobody is killed")),
    Scenario("host-oom-kept-graph", "a kept autograd graph eats the host's memory",
             "kernel-oom-killed-process", "host-oom", needs=("root", "cgroup", "kernel-log"),
             wants=Wants(memory_mb=1000), evidence=(OOM_LINE,), arguments={"steps": 200}),
    Scenario("host-oom-dataloader-worker", "a DataLoader worker is killed by the kernel for memory",
             "kernel-oom-killed-process", "host-oom", nproc=2, needs=("root", "cgroup", "kernel-log"),
             wants=Wants(memory_mb=1000), arguments={"step": 4},
             evidence=(r"Killed process [0-9]+ \(pt_data_worker\)",
                       r"DataLoader worker \(pid [0-9]+\) is killed by signal: Killed")),
    Scenario("master-low-memory", "rank 0 is killed for memory before the group forms",
             "kernel-oom-killed-process", "host-oom", launcher="plain",
             needs=("root", "cgroup", "kernel-log"), wants=Wants(memory_mb=900), arguments={"rank": 0},
             evidence=(OOM_LINE,)),
    # signals from outside
    Scenario("rank-sigkill", "one rank is killed from outside", "rank-exit-sigkill", "external-signal",
             nproc=4, act="kill-rank", outcomes=("incident", "undetermined"),
             evidence=(r"exitcode: -9\) local_rank: {local_rank} ", r"exitcode +: -9 \(pid: {pid}\)")),
    Scenario("rank-sigstop", "one rank is frozen from outside", "rank-never-arrived", "hang", act="stop-rank",
             look=True, also=("external-signal",)),
    Scenario("sigterm-preemption", "the launcher gets SIGTERM", "launcher-received-signal", "external-signal",
             culprit="nobody", act="term-launcher", also=("scheduler",),
             evidence=(r"Received 15 death signal", r"SignalException: Process [0-9]+ got signal: 15")),
    Scenario("interrupt-ctrl-c", "the launcher gets SIGINT", "launcher-sigint", "external-signal",
             culprit="nobody", act="interrupt-launcher", also=("scheduler",),
             evidence=(r"Received 2 death signal", r"SignalException: Process [0-9]+ got signal: 2")),
    Scenario("terminal-closed", "the launcher gets SIGHUP", "launcher-sighup", "external-signal",
             culprit="nobody", act="hang-up-launcher", also=("scheduler",),
             evidence=(r"Received 1 death signal", r"SignalException: Process [0-9]+ got signal: 1")),
    # crashes
    Scenario("segfault-faulthandler", "a native extension crashes, faulthandler is on",
             "faulthandler-fatal-error", "native-crash",
             evidence=(r"Fatal Python error: Segmentation fault",)),
    Scenario("segfault-silent", "a native extension crashes, only the kernel reports it", "kernel-segfault",
             "native-crash", needs=("kernel-log",),
             proves={"kernel-trap": {"signal": "FPE"}, "rank-exit-crash-signal": {"kernel_log": 0}},
             fallback=Fallback({"kernel_log": 0}, "rank-exit-crash-signal",
                               "only the exit status tells of the crash"),
             evidence=(r"\[{pid}\]: segfault at ", r"exitcode: -11\) local_rank: {local_rank} ",
                       r"exitcode +: -11 \(pid: {pid}\)")),
    Scenario("segfault-dataloader-worker", "a DataLoader worker crashes", "dataloader-worker-segfault",
             "native-crash", nproc=2,
             evidence=(r"DataLoader worker \(pid [0-9]+\) is killed by signal: Segmentation fault",
                       r"Unexpected segmentation fault")),
    Scenario("stack-overflow", "native recursion ends in a segmentation fault", "faulthandler-fatal-error",
             "native-crash", evidence=(r"Fatal Python error: Segmentation fault",)),
    Scenario("abort-cpp-exception", "an uncaught C++ exception aborts one rank", "cpp-terminate",
             "native-crash", evidence=(r"terminate called after throwing an instance of 'std::out_of_range'",
                                       r"what\(\):  vector::_M_range_check")),
    Scenario("sigbus-truncated-data", "a mapped data file is truncated under a rank",
             "faulthandler-fatal-error", "native-crash",
             evidence=(r"Fatal Python error: Bus error", r"exitcode: -7\) local_rank: {local_rank} ")),
    Scenario("race-threads-one-group", "two threads share a process group", "gloo-size-mismatch",
             "collective-mismatch", culprit="any", nproc=2, also=("hang", "native-crash"),
             outcomes=("incident", "undetermined"), look=True,
             evidence=(r"Received data size doesn't match",)),
    # collectives
    Scenario("shape-mismatch", "one rank reduces a tensor of another size", "gloo-size-mismatch",
             "collective-mismatch", culprit="any", outcomes=("incident", "undetermined"),
             proves={"ranks-in-different-collectives": {"detail": 1}},
             evidence=(r"Received data size doesn't match expected size",
                       r"Detected mismatch between collectives")),
    Scenario("dtype-mismatch", "one rank reduces another dtype", "gloo-size-mismatch", "collective-mismatch",
             culprit="any", outcomes=("incident", "undetermined"),
             evidence=(r"Received data size doesn't match expected size",)),
    Scenario("order-mismatch", "one rank calls two collectives in the other order",
             "ranks-in-different-collectives", "collective-mismatch", look=True, also=("hang",),
             outcomes=("incident", "undetermined"),
             evidence=(r"Detected mismatch between collectives", r"Received data size doesn't match")),
    Scenario("cyclic-wait", "every stage of a ring receives first", "ranks-all-receive", "hang",
             culprit="nobody", look=True, also=("collective-mismatch",),
             outcomes=("incident", "undetermined"),
             evidence=(r"Timed out waiting [0-9]+ms for recv operation",)),
    Scenario("async-never-waited", "one rank exits with an open all_reduce", "rank-left-early",
             "collective-mismatch", also=("hang", "peer-lost"), outcomes=("incident", "undetermined")),
    Scenario("skipped-collective", "one rank skips an all_reduce", "ranks-in-different-collectives",
             "collective-mismatch", look=True, also=("hang",), arguments={"dump": 1},
             proves={"gloo-size-mismatch": {"dump": 0}}),
    Scenario("manual-allreduce-beside-ddp", "an extra all_reduce beside DDP on one rank",
             "gloo-size-mismatch", "collective-mismatch", culprit="any", look=True,
             also=("hang", "native-crash"), outcomes=("incident", "undetermined"),
             evidence=(r"Received data size doesn't match",)),
    Scenario("ranks-diverge-local-update", "one rank changes its weights by itself", "python-exception",
             "python-exception", culprit="any", also=("collective-mismatch", "numerics"),
             evidence=(r"RuntimeError: weights differ between ranks",)),
    Scenario("uneven-batches", "one rank runs out of batches", "rank-left-early",
             "collective-mismatch", also=("hang", "peer-lost"),
             evidence=(r"epoch 0 finished after [0-9]+ batches",)),
    Scenario("swallowed-exception", "an exception is handled and a collective missed",
             "tensor-shape-mismatch", "python-exception", also=("hang", "collective-mismatch"), look=True,
             proves={"ranks-in-different-collectives": {"loud": 0}},
             evidence=(r"bad batch [0-9]+, skipping", r"RuntimeError: size mismatch")),
    # hangs
    Scenario("slow-rank", "one rank stalls in its data source", "rank-never-arrived", "hang", nproc=4,
             look=True, proves={"recorder-rank-behind": {"dump": 1}}),
    Scenario("dataloader-fork-deadlock", "a DataLoader worker inherits a held lock", "rank-never-arrived",
             "hang", look=True),
    Scenario("dataloader-starvation", "one data worker is slower than its rank", "rank-never-arrived", "hang",
             nproc=2, look=True),
    Scenario("rank0-in-io", "rank 0 writes a checkpoint while the others wait", "rank-never-arrived", "hang",
             look=True, also=("storage",), arguments={"rank": 0}),
    Scenario("rank0-prepares-data", "rank 0 tokenizes while the others wait in a barrier",
             "rank-never-arrived", "hang", save="console", arguments={"rank": 0},
             evidence=(r"tokenizing: +[0-9]+%",)),
    Scenario("monitored-barrier", "one rank does not enter the barrier", "monitored-barrier-missing-rank",
             "hang", evidence=(r"Ranks? {rank} failed to pass monitoredBarrier",)),
    # start-up
    Scenario("master-unresolvable", "MASTER_ADDR cannot be resolved", "dns-unresolvable", "rendezvous",
             culprit="nobody", launcher="plain", nproc=2,
             start=Start(all_env={"MASTER_ADDR": "trainer-0.train-headless"}), also=("network",),
             evidence=(r"trainer-0\.train-headless.*(cannot be retrieved|timed out)",
                       r"client socket has timed out")),
    Scenario("master-refused", "one rank has another MASTER_PORT", "rank-found-no-store", "rendezvous",
             launcher="plain", start=Start(env={"MASTER_PORT": "{closed_port}"}), also=("network",),
             evidence=(r"client socket has timed out", r"failed to connect", r"clients joined")),
    Scenario("master-addr-hard-coded", "MASTER_ADDR=127.0.0.1 on two hosts", "store-clients-joined",
             "rendezvous", culprit="any", launcher="two-hosts", nproc=4, needs=("root", "netns"),
             start=Start(all_env={"MASTER_ADDR": "127.0.0.1"}), wants=Wants(hosts=("node-a", "node-b")),
             evidence=(r"client socket has timed out", r"clients joined")),
    Scenario("firewall-drop", "a packet filter in front of the master", "store-clients-joined", "rendezvous",
             culprit="any", launcher="two-hosts", nproc=2, needs=("root", "netns"),
             wants=Wants(hosts=("node-a", "node-b"), block="all"), also=("network",),
             evidence=(r"client socket has timed out", r"clients joined")),
    Scenario("data-ports-blocked", "only the store's port is open", "gloo-connect-full-mesh-failed",
             "rendezvous", culprit="any", launcher="two-hosts", nproc=2, needs=("root", "netns"),
             wants=Wants(hosts=("node-a", "node-b"), block="data-ports"), also=("network",),
             evidence=(r"Gloo connectFullMesh failed",)),
    Scenario("late-rank", "one rank starts after the others gave up", "rank-joined-late", "rendezvous",
             launcher="plain", start=Start(delay_s=22.0), also=("hang",),
             evidence=(r"clients joined", r"wait timeout after")),
    Scenario("missing-rank", "one rank was never started", "rank-never-joined", "rendezvous",
             launcher="plain", nproc=4, start=Start(absent=True), arguments={"rank": 3},
             evidence=(r"clients joined",
                       r"wait timeout after [0-9]+ms, keys: /default_pg/0//cpu//0/{rank}")),
    Scenario("duplicate-rank", "two processes have the same RANK", "rank-started-twice", "rendezvous",
             culprit="any", launcher="plain", start=Start(env={"RANK": "{other_rank}"}), nproc=4,
             arguments={"rank": 2}, evidence=(r"clients joined", r"wait timeout after",
                                              r"server socket has failed to listen")),
    Scenario("missing-env", "RANK is not set in one process", "env-var-missing", "rendezvous",
             launcher="plain", start=Start(env={"RANK": None}), also=("environment", "python-exception"),
             evidence=(r"environment variable RANK expected, but not set",)),
    Scenario("wrong-interface", "GLOO_SOCKET_IFNAME does not exist", "interface-not-found", "rendezvous",
             launcher="plain", start=Start(env={"GLOO_SOCKET_IFNAME": "ib7"}),
             also=("environment", "network"), evidence=(r"Unable to find address for: ib7",)),
    Scenario("world-size-disagrees", "one process has another WORLD_SIZE", "world-sizes-differ", "rendezvous",
             launcher="plain", start=Start(env={"WORLD_SIZE": "{world_size_plus_1}"})),
    Scenario("port-in-use", "the master port is taken", "address-in-use", "rendezvous", culprit="nobody",
             launcher="plain", nproc=2, start=Start(port_taken=True), patience_s=30.0,
             also=("resource-limit", "environment"), evidence=(r"EADDRINUSE",)),
    Scenario("agent-node-missing", "the launcher waits for a second host", "rendezvous-timeout", "rendezvous",
             culprit="any", nproc=2, evidence=(r"RendezvousTimeoutError",)),
    Scenario("nccl-without-gpu", "backend nccl without a GPU", "backend-not-built", "environment",
             culprit="any", backend="nccl", nproc=2, also=("rendezvous",), proves={"no-gpu-for-nccl": {}},
             env={"CUDA_VISIBLE_DEVICES": ""}, evidence=(r"Distributed package doesn't have NCCL built in",
                                                         r"only supported with GPUs, no GPUs found")),
    Scenario("init-error-hidden-by-sleep", "an error before the group forms, and a sleep",
             "rank-stuck-before-init", "rendezvous", also=("python-exception", "hang"),
             evidence=(r"configuration not ready: KeyError", r"KeyError: 'tokenizer_path'")),
    Scenario("import-error-one-rank", "one rank lacks a package", "module-not-found", "python-exception",
             also=("environment",), evidence=(r"ModuleNotFoundError: No module named 'fused_norms'",)),
    Scenario("version-mismatch", "one rank announces another version", "python-exception", "python-exception",
             culprit="any", also=("environment",),
             evidence=(r"RuntimeError: torch versions differ between ranks",)),
    # resources, storage, data
    Scenario("shm-too-small", "/dev/shm is too small for the DataLoader", "shm-allocation-failed",
             "shared-memory", nproc=2, needs=("root",), wants=Wants(shm_mb=8),
             evidence=(r"unable to allocate shared memory\(shm\)", r"out of shared memory", r"Bus error")),
    Scenario("nan-one-rank", "one rank's loss becomes NaN", "loss-is-nan", "numerics",
             evidence=(r"(?i)loss[^a-z]*nan",), nproc=3),
    Scenario("disk-full-checkpoint", "the disk is full at a checkpoint", "torch-save-failed", "storage",
             needs=("root",), wants=Wants(disk_kb=256), arguments={"rank": 0}, also=("checkpoint",),
             evidence=(r"unexpected pos [0-9]+ vs [0-9]+", r"No space left on device", r"iostream error")),
    Scenario("disk-full-log-write", "the disk is full at a plain write", "no-space-left", "storage",
             needs=("root",), wants=Wants(disk_kb=256), evidence=(r"No space left on device",)),
    Scenario("truncated-checkpoint", "a checkpoint was cut short", "checkpoint-truncated-zip", "checkpoint",
             culprit="any", proves={"checkpoint-corrupt": {"keep": 150_000}},
             also=("storage",), evidence=(r"PytorchStreamReader failed",
                                          r"OSError: \[Errno 22\] Invalid argument", r"Ran out of input")),
    Scenario("checkpoint-shape", "a checkpoint of another model", "checkpoint-key-mismatch", "checkpoint",
             culprit="any", evidence=(r"Error\(s\) in loading state_dict", r"size mismatch for ")),
    Scenario("file-missing-one-rank", "a shard is missing on one host", "file-not-found", "storage",
             also=("python-exception",), evidence=(r"FileNotFoundError: \[Errno 2\]",)),
    Scenario("too-many-open-files", "one rank runs out of descriptors", "too-many-open-files",
             "resource-limit", evidence=(r"Too many open files",)),
    Scenario("unused-parameters", "parameters without a gradient", "ddp-unused-parameters", "ddp-usage",
             culprit="any", evidence=(r"Expected to have finished reduction in the prior iteration",)),
    Scenario("ddp-model-differs", "one rank builds another model", "ddp-shape-mismatch", "ddp-usage",
             also=("collective-mismatch",), evidence=(r"appears not to match sizes of the same param",)),
    Scenario("python-exception-one-rank", "an exception on one rank", "python-exception", "python-exception",
             nproc=4, also=("host-oom",), proves={"index-out-of-range": {"error": "index"},
                     "tensor-shape-mismatch": {"error": "shape"}, "tensor-dtype-mismatch": {"error": "dtype"},
                     "autograd-graph-freed": {"error": "graph-freed"},
                     "autograd-inplace-modified": {"error": "in-place"},
                     "python-recursion-error": {"error": "recursion"},
                     "python-memory-error": {"error": "memory"},
                     "batch-collate-mismatch": {"error": "collate"}, "cannot-pickle": {"error": "pickle"},
                     "corrupt-data-sample": {"error": "corrupt"},
                     "process-group-not-initialized": {"error": "not-initialized"},
                     "python-syntax-error": {"error": "syntax"},
                     "process-group-initialized-twice": {"error": "initialized-twice"}},
             evidence=(r"ValueError: sample [0-9]+: label 4711 outside of", r"(Error|Exception): ")),
    Scenario("python-exception-dataloader", "an exception in a DataLoader worker", "python-exception",
             "python-exception", nproc=2, evidence=(r"KeyError: 'features'",)),
    Scenario("silent-exit", "one rank exits without a word", "rank-exit-without-reason", "python-exception",
             outcomes=("incident", "undetermined"), also=("external-signal", "peer-lost"),
             evidence=(r"exitcode: 3\) local_rank: {local_rank} ", r"exitcode +: 3 \(pid: {pid}\)")),
    # GPUs
    Scenario("gpu-oom-one-rank", "one rank fills its GPU", "cuda-out-of-memory", "gpu-oom", nproc=2,
             needs=("gpu",), evidence=(r"CUDA out of memory\. Tried to allocate",)),
    Scenario("device-assert", "an index out of range inside a CUDA kernel", "cuda-device-assert", "gpu-fault",
             nproc=2, needs=("gpu",), proves={"cuda-device-side-assert-error": {}},
             evidence=(r"Assertion .* failed", r"device-side assert triggered")),
    Scenario("illegal-access", "a kernel reads where nothing is", "cuda-illegal-address", "gpu-fault",
             nproc=2, needs=("gpu",), evidence=(r"an illegal memory access was encountered",)),
    Scenario("cuda-in-forked-worker", "a forked DataLoader worker uses CUDA", "cuda-in-forked-subprocess",
             "python-exception", nproc=2, needs=("gpu",),
             evidence=(r"Cannot re-initialize CUDA in forked subprocess",)),
    Scenario("more-ranks-than-gpus", "a rank takes a GPU that is not there", "cuda-invalid-device-ordinal",
             "environment", nproc=2, needs=("gpu",), also=("rendezvous",),
             evidence=(r"invalid device ordinal",)),
    Scenario("gloo-with-gpu", "a tensor on the GPU in a group of gloo's", "gloo-with-wrong-device",
             "python-exception", culprit="any", backend="cpu:gloo", nproc=2, needs=("gpu",),
             also=("environment",), evidence=(r"No backend type associated with device",)),
    Scenario("two-ranks-one-gpu", "all ranks take the first GPU", "nccl-duplicate-gpu", "environment",
             culprit="any", backend="nccl", nproc=2, needs=("gpu",),
             evidence=(r"Duplicate GPU detected", r"Multiple Ranks are using the same GPU")),
    Scenario("nccl-nan-check", "a NaN in a reduction, with NCCL's check on", "nccl-nan-check", "numerics",
             backend="nccl", nproc=2, needs=("gpu",), env={"TORCH_NCCL_NAN_CHECK": "1"},
             evidence=(r"(NanCheck\.cu|checkForNaN).*Assertion",)),
    Scenario("nccl-stuck-kernel", "a kernel that does not end before a reduction", "nccl-watchdog-timeout",
             "hang", culprit="any", backend="nccl", nproc=2, needs=("gpu",),
             outcomes=("incident", "undetermined"),
             evidence=(r"Watchdog caught collective operation timeout",)),
    # restarts
    Scenario("restart-recovers", "the second attempt finishes", "python-exception", "python-exception",
             outcomes=("recovered",), evidence=(r"RuntimeError: shard [0-9]+: checksum mismatch",)),
    Scenario("restart-fails-again", "every attempt fails alike", "python-exception", "python-exception",
             evidence=(r"RuntimeError: shard [0-9]+: checksum mismatch",)),
    # healthy
    Scenario("healthy", "a run that ends well", None, None, culprit="nobody", outcomes=HEALTHY),
    Scenario("healthy-noisy", "a run that ends well and sounds like trouble", None, None, culprit="nobody",
             outcomes=HEALTHY),
    Scenario("healthy-dataloader", "a run with workers and checkpoints that ends well", None, None,
             culprit="nobody", outcomes=HEALTHY),
)  # fmt: skip

_BY_ID = {row.id: row for row in SCENARIOS}


def scenario(name: str) -> Scenario:
    """The scenario of that id; KeyError where there is none."""
    return _BY_ID[name]
