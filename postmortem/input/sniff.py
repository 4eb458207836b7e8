"""Head and name of a file -> its kind, which decides who reads it.

    "[ 2612.607544] python3 invoked oom-killer: gfp_mask=..." -> kernel

The rules are a table: the first one that fits wins, and each says why. A rule fits where all its conditions
hold. Names are matched without their compression suffix, in lower case. What fits no rule is a console: a
rank's output has no form. An `agent` log is a console in which torchrun's launcher speaks; with `--tee` its
workers speak there too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from postmortem.input.binary import binary, magic
from postmortem.input.journals import of_programs, of_unit
from postmortem.model.vocabulary import OWN_REPORT, STATE
from postmortem.system import lazy as late

LINES = 12
LINES_WITHIN = 1 << 13


# torch's flight recorder is a pickle of plain data (FlightRecorderDetail.hpp);
# any other pickle is somebody's objects.
FLIGHT_KEYS = (
    b"pg_config",
    b"pg_status",
    b"entries",
    b"comm_lib_version",
    b"nccl_version",
    b"collective_seq_id",
    b"profiling_name",
)
# people analyse the folder in which the last report lies, in whatever format they had it
OWN = (b'<meta name="generator" content="postmortem">', b'"schema": "postmortem/incident/')
OWN_STARTS = late.regex(
    rb'\s*(?:\{\s*"schema": "postmortem/|\{"time":[^,]{0,40},"uncertainty_s":|time,uncertainty_s,rank,host,kind,'
    rb'|<\?xml[^>]{0,80}>\s*<testsuites name="postmortem"|\{"displayTimeUnit":"ms","otherData":\{"tool":"postmortem")'
)
# what `postmortem collect` saves of a host for its reader, and its index
COLLECTED = late.regex(rb'\s*(?:# postmortem collect: |\{\s*"schema": "postmortem/input/)')


@dataclass(frozen=True)
class Rule:
    """One way to tell a kind. `name` searches the path, `start` matches the first text, `line` is to fit half
    of the first lines (`share` of them), `holds` are bytes that all stand in the head, `test` is anything
    else."""

    kind: str
    why: str
    name: str = ""
    start: str = ""
    line: str = ""
    share: float = 0.5
    holds: tuple[bytes, ...] = ()
    test: Callable[[Head], bool] | None = None

    @cached_property
    def _compiled(self) -> tuple[re.Pattern[str] | None, re.Pattern[bytes] | None, re.Pattern[bytes] | None]:
        return (
            late.regex(self.name) if self.name else None,
            _bytes(self.start, re.MULTILINE) if self.start else None,
            _bytes(self.line) if self.line else None,
        )

    def fits(self, path: str, head: Head) -> bool:
        name, start, line = self._compiled
        return (
            (name is None or name.search(path) is not None)
            and (start is None or start.match(head.text) is not None)
            and (line is None or head.mostly(line, self.share))
            and all(literal in head.text for literal in self.holds)
            and (self.test is None or self.test(head))
        )


@dataclass
class Head:
    """The first 64 KiB, without the NULs that may stand in front, and its first lines."""

    text: bytes
    lines: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.text = self.text.lstrip(b"\0").removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
        self.lines = [line for line in self.text[:LINES_WITHIN].splitlines()[:LINES] if line.strip()]

    def mostly(self, pattern: re.Pattern[bytes], share: float) -> bool:
        """True where the pattern fits that share of the first lines."""
        misses = len(self.lines) * (1 - share)
        for line in self.lines:
            if pattern.match(line) is None:
                misses -= 1
                if misses < 0:
                    return False
        return bool(self.lines)


def _bytes(pattern: str, flags: int = 0) -> re.Pattern[bytes]:
    return late.regex(pattern.encode(), flags)


def _flight(head: Head) -> bool:
    return sum(b'"%s"' % key in head.text for key in FLIGHT_KEYS) >= 2


def _objects(head: Head) -> bool:
    """True where the first lines are JSON objects, one a line."""
    whole = head.lines if len(head.text) < LINES_WITHIN else head.lines[:-1]
    for line in whole[:2]:
        if not line.lstrip().startswith(b"{"):
            return False
        try:
            if not isinstance(json.loads(line), dict):
                return False
        except (ValueError, RecursionError):
            return False
    return bool(whole) or head.text[:2] in (b'{"', b"{ ")


MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)"
FACILITY = r"(?:kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local[0-7])"
LEVEL = r"(?:emerg|alert|crit|err|error|warn|warning|notice|info|debug)"
BOOT = r"\[ *\d+\.\d{6}\]"
DMESG = "|".join(
    (
        rf"(?:<\d{{1,3}}>)?{BOOT}",  # dmesg, dmesg --raw, a serial console
        rf"{FACILITY} *:{LEVEL} *: \[",  # dmesg -x, with any stamp
        rf"\[{DAY} {MONTH} [ \d]\d \d\d:\d\d:\d\d \d{{4}}\]",  # dmesg -T
        # dmesg --time-format iso: the comma is util-linux's
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:\d\d ",
        rf"\[{MONTH} ?\d+ \d\d:\d\d\]|\[ *\+\d+\.\d{{6}}\]|\[ *\d+\.\d{{6}} <",  # dmesg -H, -e, -d
        rf"\S+: {FACILITY}: *{LEVEL}: \[\d{{4}}-",  # talosctl dmesg
        r"(?:\[ *\d+\.\d{6}\] )?NVRM: | {8,}NVRM: ",  # the continuation lines of a multi-line NVRM message
    )
)
# The word before the colon is a program in a syslog, a level in an application's own log.
PROGRAM = r"(?!(?:INFO|WARN|WARNING|ERROR|DEBUG|CRITICAL|FATAL|TRACE|NOTICE)\b)[\w./()-]{1,48}(?:\[\d+\])?: "
# A host stands before it: `Nov 20 21:20:00 GPU available: False` is an application's line behind a
# collector's time.
HOSTED = r"(?=\S*[\d.-]|localhost |\S+ (?:kernel|systemd|[\w./()-]+\[\d+\]):)"
SYSLOG = "|".join(
    (
        # rsyslog, journalctl -o short
        rf"(?:<\d{{1,3}}>)?{MONTH} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? {HOSTED}\S+ {PROGRAM}",
        # rsyslog with ISO stamps, journalctl -o short-iso
        rf"{ISO} (?!(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL) ){HOSTED}\S+ {PROGRAM}",
        rf"{DAY} \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d \S+ \S+ {PROGRAM}",  # journalctl -o short-full
        rf"\d{{9,11}}\.\d{{6}} {HOSTED}\S+ {PROGRAM}",  # journalctl -o short-unix
        r"kernel: |-- (?:Journal begins|Logs begin|Boot [0-9a-f]{32})",  # journalctl -o cat; its own lines
    )
)
LAUNCHER = (
    rb"torch/distributed/run.py:", rb"torch/distributed/elastic/agent/",
    rb"torch/distributed/elastic/multiprocessing/api.py:", rb"torch/distributed/launcher/api.py:",
    rb"torch.distributed.run:", rb"torch.distributed.launcher.api:",
    rb"torch.distributed.elastic.multiprocessing.api:", rb"torch.distributed.elastic.agent.server.api:",
)  # fmt: skip
# `api.py:874]` and `api: [WARNING]` are the launcher's logger;
# `api.py", line 367` is a frame of somebody's traceback.
LAUNCHED = late.regex(
    rb"torch/distributed/(?:run|launcher/api|elastic/[\w/]{1,60})\.py:\d+\]"
    rb"|torch\.distributed\.(?:run|launcher\.api|elastic\.[\w.]{1,60}): ?\[?(?:WARNING|ERROR|INFO|\[)"
    rb"|(?:WARNING|ERROR|INFO):torch\.distributed\.(?:run|launcher|elastic)"
)


def _launcher(head: Head) -> bool:
    return any(literal in head.text for literal in LAUNCHER) and LAUNCHED.search(head.text) is not None


def _containers(head: Head) -> bool:
    """True where states of containers are cut out of `kubectl describe pod`."""
    return b"Exit Code:" in head.text and CONTAINER_STATE.search(head.text) is not None


# Names. A path is searched in lower case, without its compression suffix.
CONSOLES = (
    r"(?:^|[/._-])(?:global[._-]?)?rank[._-]?\d+(?=[/._-]|$)|(?:^|/)slurm[-_.]\d"
    r"|(?:^|/)attempt_\d+/\d+/std(?:out|err)\.log$"
)
LAUNCHERS = r"(?:^|/)(?:agent|torchrun|elastic[-_]?agent|launcher)(?:[._-][^/]*)?\.(?:log|err|out|txt)$"
ERROR_FILES = r"(?:^|/)(?:torchelastic_)?error(?:_rank_?\d+|_\d+)?\.json$"
GPU_TOOLS = r"(?:^|/)[^/]*(?:nvidia[-_]smi|nvidia[-_]bug[-_]report|dcgmi?|rocm[-_]smi)[^/]*$"
CGROUPS = r"(?:^|/)(?:cgroup[\w.-]*|memory\.[a-z_.]+)$"
KERNELS = (
    # node-a.dmesg.txt, kern.log.1, dmesg_T.txt
    r"(?:^|/)(?:[^/]*[._-])?(?:dmesg|journalctl|kern|syslog|kmsg)(?:[._-][^/]*)?$"
    r"|(?:^|/)(?:kernel|messages)(?:\.log|\.txt)?$"
)
RAY_DAEMONS = (
    r"(?:^|/)(?:raylet|gcs_server|python-core-(?:worker|driver)-|ray-train-|ray-data|log_monitor"
    r"|runtime_env)[^/]*$"
)
# worker-<id>-<job>-<pid>.out and .err are what the user's code printed: a console
RAY_SESSION = (
    r"(?:^|/)(?:ray_session_logs|session_(?:latest|\d{4}-\d\d-\d\d_[\d_-]+)/logs)/"
    r"(?!worker-[0-9a-f]{8,}[^/]*\.(?:out|err)$)"
)
# Lines.
RAY_LINE = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [DIWEF] \d+ \d+\] (?:\(\w+\) )?\w+\.(?:cc|h):\d+:"
FAULTHANDLER_START = r"Timeout \(\d|(?:Current thread|Thread) 0x[0-9a-f]+ .{0,40}\(most recent call first\)"
FAULTHANDLER_LINE = (
    r'  File "|(?:Current thread|Thread) 0x|Timeout \(\d|  \.\.\.|  <no Python frame>|Extension modules:'
)
PYSTACK = (
    r"Core file information:|Traceback for thread \d+|Reporting \d+ threads"
    r"|Using executable found in the core"
)
GDB_START = r"GNU gdb |\[New (?:LWP|Thread) |\[Thread debugging using|Thread \d+ \((?:Thread 0x|LWP )|#0  +(?:0x)?\w"
GDB_LINE = r"#\d+ +(?:0x[0-9a-f]+ in )?\S+ \(|\[New LWP|Core was generated by|Program terminated"
CGROUP_LINE = r"(?:==> )?/sys/fs/cgroup/|\d+$|max$|[a-z_]+ \d+$|-{3}|=+>"
CGROUP_COUNTER = r"(?:low|high|max|oom|oom_kill|oom_group_kill|anon|file|kernel|shmem|pgfault|(?:in)?active_\w+) \d+$"
RUN_JOURNAL = r'\{"time": "[^"]{20,40}", "host": "[^"]{1,253}", "event": "(?:run|watch)", "message": "postmortem (?:run|watch) on '
JSON_JOURNAL = r"\s*[\[{]"
EXPORT = r"(?:__CURSOR=s=|__REALTIME_TIMESTAMP=\d{15,17}$)"
SACCT = r"\s*(?:JobID|JOBID|JobIDRaw|PARTITION|NODELIST)[ |].*\b(?:State|STATE|ST|ExitCode)\b"
CONTAINER_STATE = late.regex(
    rb"^ *(?:Last )?State: +(?:Running|Waiting|Terminated)\s+^ +(?:Reason|Started|Exit Code): ", re.M
)
SLURMD_LINE = (
    r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?\] "
    r"(?:\[\d+\.[\w.]+\] |error: |debug\d?: |info: |sched|_?slurm|launch task|task_p|Launching|_?[Jj]ob"
    r"|server_|[Nn]ode)"
)
EVENT_ROW = r" *(?:\S+ +)?(?:\d+[smhd]){0,3}(?: \(x\d+ over \w+\))? *(?:Normal|Warning) +[A-Z]\w+ +"
GET_EVENTS = r"(?:NAMESPACE +)?LAST SEEN +(?:FIRST SEEN +COUNT +NAME +KIND +)?TYPE +REASON"

RULES: tuple[Rule, ...] = (
    Rule("error-file", "torchelastic's error file", name=ERROR_FILES, start=r"\s*(?:\{|$)"),
    Rule(
        "error-file",
        "what torchelastic's @record writes",
        start=r'\s*\{"message":',
        holds=(b'"extraInfo"', b'"py_callstack"'),
    ),
    Rule("flight-recorder", "a JSON dump with the flight recorder's fields", start=r"\s*\{", test=_flight),
    # collected by hand, around the job
    Rule(
        "core-note",
        "what file(1) says of a core file",
        start=r"[^\n:]{1,200}: +ELF (?:32|64)-bit [LM]SB core file",
    ),
    Rule("core-note", "coredumpctl info", start=r" +PID: \d+ \(", holds=(b" Signal: ",)),
    Rule("core-note", "coredumpctl list", start=r"TIME +PID +UID +GID +SIG +COREFILE"),
    # a prompt or a heading may stand above
    Rule(
        "stack",
        "py-spy dump",
        start=r"(?:[^\n]{0,200}\n){0,3}Process \d+: ",
        holds=(b"\nPython v", b"\nThread "),
    ),
    Rule(
        "stack",
        "py-spy dump without its header",
        start=r"Thread (?:0x)?[0-9A-Fa-f]+ \((?:idle|active)[^)\n]*\)",
    ),
    Rule("stack", "pystack", start=PYSTACK),
    Rule("stack", "gdb", start=GDB_START),
    Rule("stack", "gdb that read a core", line=GDB_LINE),
    Rule(
        "stack",
        "nothing but a faulthandler dump",
        start=FAULTHANDLER_START,
        line=FAULTHANDLER_LINE,
        share=0.95,
    ),
    Rule("process-table", "ps", start=r" *(?:[A-Z%]{1,8} +){0,8}PID\b.*\b(?:CMD|COMMAND|COMM)\b"),
    Rule("process-table", "top", start=r"top - \d\d:\d\d:\d\d up "),
    Rule(
        "cgroup",
        "cgroup files with their paths",
        line=CGROUP_LINE,
        share=0.7,
        holds=(b"/sys/fs/cgroup/", b"memory."),
    ),
    Rule("cgroup", "a cgroup file by its name", name=CGROUPS, line=r"[\w./:-]+[:=]?\s*(?:\d+|max)?$|\s*$"),
    Rule("cgroup", "memory.events or memory.stat", line=CGROUP_COUNTER, share=0.6),
    Rule("gpu-report", "nvidia-smi -q", start=r"=+NVSMI LOG=+"),
    Rule(
        "gpu-report",
        "nvidia-bug-report.sh",
        start=r"_*\s*(?:Start of NVIDIA bug report log file|nvidia-bug-report)",
    ),
    Rule("gpu-report", "a GPU tool's output by its name", name=GPU_TOOLS),
    # schedulers, and the kernel
    Rule(
        "agent",
        "JSON of units in which torchrun's logger speaks",
        start=JSON_JOURNAL,
        holds=(b'"__REALTIME_TIMESTAMP"',),
        test=lambda head: of_programs(head.text) and _launcher(head),
    ),
    Rule(
        "console",
        "journalctl -o json of units",
        start=JSON_JOURNAL,
        holds=(b'"__REALTIME_TIMESTAMP"',),
        test=lambda head: of_programs(head.text),
    ),
    Rule("kernel", "journalctl -o json", start=r"\{", holds=(b'"__REALTIME_TIMESTAMP"',)),
    Rule(
        "agent",
        "an export of units in which torchrun's logger speaks",
        start=EXPORT,
        test=lambda head: of_programs(head.text) and _launcher(head),
    ),
    Rule("console", "journalctl -o export of units", start=EXPORT, test=lambda head: of_programs(head.text)),
    Rule("kernel", "journalctl -o export", start=EXPORT),
    Rule("environment", "what env prints", line=r"[A-Z_][A-Z0-9_]{2,60}=(?!\S* +\w+=)", share=0.9),
    Rule("ray", "a Ray daemon's log", name=RAY_DAEMONS),
    Rule("ray", "a log of a Ray session", name=RAY_SESSION),
    Rule("ray", "lines of Ray's C++ logger", line=RAY_LINE),
    Rule("kernel", "a kernel ring buffer", line=DMESG),
    Rule("scheduler", "scontrol show", start=r"(?:JobId|NodeName|PartitionName|StepId)=\S+ "),
    Rule("scheduler", "sacct, squeue or sinfo", start=SACCT),
    Rule("scheduler", "a Slurm daemon's log by its name", name=r"(?:^|/)slurm(?:ctld|d|dbd|stepd)\b[^/]*$"),
    Rule("scheduler", "a Slurm daemon's log", line=SLURMD_LINE, share=0.8),
    Rule("kubernetes", "kubectl describe", start=r"Name: +\S+", holds=(b"\nNamespace: ",)),
    Rule("kubernetes", "containers of kubectl describe", test=_containers),
    Rule("kubernetes", "events of kubectl describe", start=r"Events:\s*$|\s+Type +Reason +Age +From +Message"),
    Rule("kubernetes", "kubectl get events", start=GET_EVENTS),
    Rule("kubernetes", "kubectl get", start=r"(?:NAMESPACE +)?NAME +(?:READY|STATUS|COMPLETIONS|STATE) +"),
    Rule("kubernetes", "rows of an event table", line=EVENT_ROW),
    Rule("kubernetes", "a manifest", start=r"(?:- )?apiVersion: \S+", holds=(b"kind: ",)),
    Rule("kubernetes", "a manifest in JSON", start=r"\s*\{", holds=(b'"apiVersion":', b'"kind":')),
    Rule(
        "agent",
        "a unit's journal in which torchrun's logger speaks",
        line=SYSLOG,
        test=lambda head: of_unit(head.text) and _launcher(head),
    ),
    Rule("console", "a unit's journal", line=SYSLOG, test=lambda head: of_unit(head.text)),
    Rule("kernel", "syslog or a journal", line=SYSLOG),
    Rule(
        "kernel",
        "a kernel log by its name, whatever little it holds",
        name=KERNELS,
        test=lambda head: not _launcher(head),
    ),
    # what the job itself printed
    Rule("agent", "the name says launcher", name=LAUNCHERS),
    Rule(
        "console",
        "the name says rank, or a job's own output",
        name=CONSOLES,
        test=lambda head: not _objects(head),
    ),
    Rule("agent", "torchrun's logger speaks", test=_launcher),
    Rule("run", "the journal of `postmortem run` or `watch`", start=RUN_JOURNAL),
    Rule("json-lines", "one JSON object a line", start=r"\s*\{", test=_objects),
)

# One look each tells of nearly every log that none of the rules fits that ask for a beginning,
# or for the form of lines.
STARTS = _bytes("|".join(f"(?:{rule.start})" for rule in RULES if rule.start), re.MULTILINE)
FORMS = _bytes("|".join(f"(?:{rule.line})" for rule in RULES if rule.line))
SUFFIX = late.regex(r"\.(?:gz|xz|bz2|zst|zstd)$")


def kind(path: str, head: bytes) -> tuple[str, str]:
    """Return a file's kind and why. `path` is its label, `head` its first 64 KiB, decompressed."""
    if head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5") and magic(head) is None:
        if sum(key in head for key in FLIGHT_KEYS) >= 2:
            return "flight-recorder", "a pickle with the flight recorder's fields"
        return "binary", "binary (pickle)"
    if what := binary(head):
        return "binary", f"binary ({what})"
    if COLLECTED.match(head):
        return "binary", STATE
    if OWN_STARTS.match(head) or any(mark in head[:4096] for mark in OWN):
        return "binary", OWN_REPORT
    name, text = SUFFIX.sub("", path).lower(), Head(head)
    started, formed = STARTS.match(text.text), any(map(FORMS.match, text.lines))
    for rule in RULES:
        if (started or not rule.start) and (formed or not rule.line) and rule.fits(name, text):
            return rule.kind, rule.why
    return "console", "no other rule fits"
