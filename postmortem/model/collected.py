"""What `postmortem collect` takes, in the order in which it is lost: plain data.

    STACK  ->  `py-spy dump --nonblocking --pid PID` into rank0.pid4711.pyspy.txt, at most 10 s

A way is a command as a list of arguments, or `read:` and one of our own readers, which needs no tool. The
first way that yields something is enough. Words in capitals are filled in. Nothing here changes the state of
a host: no reset, no signal, no memory image, no process stopped.

`diagnose/missing.py` quotes the same commands for what is not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Way = tuple[str, ...]


@dataclass(frozen=True)
class Item:
    """One thing to take."""

    name: str  # of its file
    why: str
    ways: tuple[Way, ...]
    limit: float = 10.0  # seconds of each way
    needs: str = ""
    state: bool = True  # for a reader's eye: no log, and `analyze` looks for no failure in it
    silent: tuple[str, ...] = ()  # programs whose silence is an answer: there was nothing
    end: bool = False  # of what is too long, the end is kept, not the beginning


PY_SPY = ("py-spy", "dump", "--pid", "PID")
KERNEL_JOURNAL = ("journalctl", "-k", "-o", "short-iso-precise")
KERNEL_DMESG = ("dmesg", "--time-format", "iso")
SACCT = ("sacct", "-j", "JOB", "-o", "JobID,State,ExitCode,DerivedExitCode,End,NodeList,Reason")
PREVIOUS = ("kubectl", "logs", "POD", "--previous", "--all-containers", "--timestamps")


def shown(way: Way) -> str:
    """A way as one line to read, or to paste."""
    return " ".join(f'"{word}"' if not word or " " in word else word for word in way)


def filled(way: Way, **words: str) -> Way:
    """A way with its words in capitals filled in. A value is one argument, whatever it holds."""
    return tuple(words.get(word, word) for word in way)


# ── of each rank that lives ─────────────────────────────────────────────────────────────────────────────────

STACK = Item(
    "rankRANK.pidPID.stack.txt",
    "where a rank stands: gone as soon as the launcher stops it",
    # without stopping the process: a tool that is killed while it holds one would leave it stopped
    (
        (*PY_SPY[:2], "--nonblocking", *PY_SPY[2:]),
        ("pystack", "remote", "--no-block", "PID"),
        # a rank that runs may have changed its frames while they were read
        (*PY_SPY[:2], "--nonblocking", *PY_SPY[2:]),
    ),
    needs="py-spy or pystack; the rank's user or root, and ptrace allowed",
    state=False,
)
PROCESS = Item(
    "rankRANK.pidPID.process.txt",
    "state, kernel stack, limits and signals of a rank's process",
    (("read:process", "PID"),),
    needs="root for the kernel stack",
)
ENVIRONMENT = Item(
    "rankRANK.pidPID.environment.txt",
    "settings of PyTorch, NCCL and the launcher; of other variables only the names",
    (("read:environment", "PID"),),
    state=False,
)
LIBRARIES = Item(
    "rankRANK.pidPID.libraries.txt",
    "versions of PyTorch, NCCL, CUDA and the network's libraries, as loaded",
    (("read:libraries", "PID"),),
)
RECORDER = Item(
    "recorder/NAME",
    "flight-recorder dumps on the host's own disk",
    (("read:copy", "FILE", "UID"),),
    state=False,
)

# ── of the host ─────────────────────────────────────────────────────────────────────────────────────────────

HOST = (
    Item(
        "cgroup.txt",
        "OOM kills, memory peak and pids of the job's cgroup: gone with the step or the pod",
        (("read:cgroups", "PIDS"),),
        state=False,
    ),
    Item(
        "ps.txt",
        "all processes with their state and what they wait for in the kernel",
        (("read:processes",),),
        state=False,
    ),
    Item("clock.txt", "time, boot and zone of the host, to compare clocks by", (("read:clock",),), limit=5),
    Item("shm.txt", "what fills /dev/shm", (("read:shm",),)),
    Item("space.txt", "mounts, and free space and inodes of each", (("read:space",),)),
    Item(
        "pressure.txt",
        "memory, load and pressure of the host",
        (("read:files", "/proc/loadavg", "/proc/meminfo", "/proc/pressure/*", "/proc/vmstat"),),
    ),
    Item(
        "limits.txt",
        "limits of this user and of the kernel",
        (
            (
                "read:files",
                "/proc/self/limits",
                "/proc/sys/kernel/pid_max",
                "/proc/sys/kernel/threads-max",
                "/proc/sys/fs/file-nr",
                "/proc/sys/vm/max_map_count",
                "/proc/sys/vm/overcommit_memory",
                "/proc/sys/kernel/yama/ptrace_scope",
                "/proc/sys/kernel/dmesg_restrict",
                "/proc/sys/kernel/core_pattern",
            ),
        ),
    ),
    Item(
        "kernel.log",
        "OOM kills, Xids, faults, disks, links: the ring buffer forgets",
        (
            (*KERNEL_JOURNAL, "--quiet", "--no-pager", "--since", "SINCE"),
            (*KERNEL_DMESG, "--since", "SINCE"),
            ("read:kmsg", "EPOCH"),
            KERNEL_DMESG,  # of util-linux before 2.37: older lines too
        ),
        silent=("dmesg", "read:kmsg"),
        limit=20,
        needs="root, or kernel.dmesg_restrict=0, or the group of the journal",
        state=False,
        end=True,
    ),
    Item(
        "ip-link.txt",
        "errors and drops of each interface",
        (("ip", "-s", "link"), ("read:files", "/proc/net/dev")),
    ),
    Item(
        "sockets.txt",
        "retransmissions and queues of each connection",
        (("ss", "-tino"), ("read:files", "/proc/net/tcp")),
    ),
    Item("network.txt", "counters of TCP", (("read:files", "/proc/net/snmp", "/proc/net/netstat"),)),
    Item(
        "rdma.txt",
        "state and error counters of each RDMA port",
        (
            (
                "read:files",
                "/sys/class/infiniband/*/ports/*/state",
                "/sys/class/infiniband/*/ports/*/phys_state",
                "/sys/class/infiniband/*/ports/*/rate",
                "/sys/class/infiniband/*/ports/*/counters/*",
                "/sys/class/infiniband/*/ports/*/hw_counters/*",
            ),
        ),
        needs="an RDMA device",
    ),
    Item(
        "ntp.txt",
        "whether the clock is synchronized, and how far it is off",
        (("chronyc", "-n", "tracking"), ("ntpq", "-pn"), ("timedatectl", "show")),
        limit=5,
    ),
    Item(
        "nvidia-smi.txt",
        "clocks, memory, ECC, retired pages and processes of each GPU",
        (("nvidia-smi", "-q"),),
        limit=30,
        needs="an NVIDIA driver",
        state=False,
    ),
    Item(
        "gpu-topology.txt",
        "which GPU is linked to which, and to which network card",
        (("nvidia-smi", "topo", "-m"),),
        limit=20,
    ),
    Item("nvlink.txt", "state of each NVLink", (("nvidia-smi", "nvlink", "--status"),), limit=20),
    Item(
        "nvlink-errors.txt",
        "error counters of each NVLink",
        (("nvidia-smi", "nvlink", "--errorcounters"),),
        limit=20,
    ),
    Item("dcgm.txt", "the health that DCGM watches", (("dcgmi", "health", "--check"),), limit=20, state=False),
    Item("amd-smi.txt", "the state of each AMD GPU", (("rocm-smi", "--showallinfo"),), limit=20),
    Item("system.txt", "kernel, drivers and devices", (("read:system",),)),
)

# ── of the scheduler, asked once, from where `collect` was started ──────────────────────────────────────────

SLURM = (
    Item(
        "sacct.txt",
        "state, exit code and end of each step",
        (SACCT,),
        limit=20,
        needs="slurmdbd",
        state=False,
    ),
    Item(
        "scontrol.txt",
        "the job as the controller has it: forgotten five minutes after its end",
        (("scontrol", "show", "job", "JOB"),),
        limit=20,
        state=False,
    ),
)
KUBERNETES = (
    Item(
        "describe.txt",
        "states, exit codes and events of the pods",
        (("kubectl", "describe", "pods", "--selector", "SELECTOR"),),
        limit=30,
        state=False,
    ),
    Item(
        "events.txt",
        "events of the namespace: gone after an hour",
        (("kubectl", "get", "events"),),
        limit=30,
        state=False,
    ),
)
POD = (
    Item(
        "previous.log",
        "what the containers printed before they were started again",
        (PREVIOUS,),
        limit=30,
        state=False,
        end=True,
    ),
    Item(
        "console.log",
        "what the containers printed",
        (("kubectl", "logs", "POD", "--all-containers", "--timestamps"),),
        limit=30,
        state=False,
        end=True,
    ),
)

ALL = (STACK, PROCESS, RECORDER, *HOST, LIBRARIES, ENVIRONMENT, *SLURM, *KUBERNETES, *POD)
