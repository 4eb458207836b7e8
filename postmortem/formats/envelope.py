"""A line -> who wrote it and when, and what is left:
the prefixes that launchers, loggers and collectors put in front.

    [default1]:[rank3]: Traceback (most recent call last):      torchrun --tee 3: local rank 1, global rank 3
    1: 2026-11-20 22:34:32.133 engine INFO: epoch 33 ...        srun --label: task 1
    (RayTrainWorker pid=23737, ip=192.0.2.2) worker ready       Ray
    (Worker_TP0 pid=4062) ERROR 09-05 01:18:30 [core.py:708] ... vLLM: nested processes, then its logger
    gpu003:4063850:4063871 [0] NCCL INFO Bootstrap : ...        NCCL: host, pid, thread, local CUDA device
    10.0.0.7: kern: warning: [2026-04-20T18:06:20.59Z]: NVRM:   Talos

Prefixes nest and repeat, so they are peeled off one by one. A leading "0: " is a label only where the whole
file has it. A bare number in a column (`16:15:49 | 2 | train …`, `2: step 9`) is a rank where the numbers are
0 to n-1 and mixed: those of epochs rise.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from postmortem.formats import marks, records, times
from postmortem.formats.style import COLUMNS, HOST, LABELS, NEAR, RANKED, SRUN, Style, learn
from postmortem.model import Stamp
from postmortem.model.digits import whole
from postmortem.system import lazy as late


class Envelope(NamedTuple):
    """What a line's prefixes say. `key` tells the writers of a merged file apart; None is unknown."""

    body: str
    key: tuple[str, ...] = ()
    rank: int | None = None
    local_rank: int | None = None
    world: int | None = None
    host: str | None = None
    pid: int | None = None
    gpu: str | None = None
    stamp: Stamp | None = None
    kernel: bool = False
    quoted: bool = False
    program: str = ""  # who wrote it, says syslog or the journal, where that is not the kernel
    line: int | None = None  # of the file, where the log was unwrapped
    writer: str = ""  # a name that a collector or a runner gave who wrote it: a pod, a process


_ANSI = late.regex(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|\x00")

_TEE = late.regex(r"\[([A-Za-z_]{2,20}?)[ _-]?(\d{1,6})\](?::(?!\d)|[: ](?=\[|\d{4}-)) ?")
_RANK_WORD = late.regex(r"[\[<(](?:rank|RANK|Rank)[ _-](\d{1,6})[\]>)] ?(?![ \w]*(?:NCCL|Watchdog|To avoid|Timeout))")
# Gloo: `[3]<stderr>:`
_MPI = late.regex(
    r"\[(?:(?:prterun-[\w.-]{1,80}@)?\d+,(?:mpirank:)?)?(\d{1,7})(?:,[\w.-]{1,60})?\]<(?:stdout|stderr|stddiag)>: ?"
)
_RAY = late.regex(r"\(([A-Za-z_][\w.:]*)(?: (?:TP|rank=)(\d{1,5}))? pid=(\d{1,10})(?:, ip=([\w.:]+))?(?:, [^)]*)?\) ?")
_WORKER_TP = late.regex(r"Worker_TP(\d{1,5})$")
_VLLM = late.regex(
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)? \[?[\w./-]{1,80}:\d+\] ?"
)
_KUBE = late.regex(r"\[pod/([\w.-]+)/[\w.-]+\] ?")
_TORCHX = late.regex(r"[\w.-]+/\d+ (?=\[)")
_CXX = late.regex(r"\[([IWEFDV])\d{3,4} \d\d:\d\d:\d\d(?:\.\d+)? ([\w.+-]+:\d+)\] ?")
_PYLOG = late.regex(r"([IWEFDVC])\d{4} \d\d:\d\d:\d\d\.\d+ +(\d{1,10}) ([^\]\n]{1,200}:\d+)\] ?")
_NCCL = late.regex(r"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] ?)?([\w.-]+):(\d{1,10}):(\d{1,10}) \[(\d{1,7})\] (?=\S)")
_STAMPED = late.regex(
    r"[\[【(|]? ?(\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?[AP]M\b)?"
    r"(?: ?UTC|Z|[+-]\d\d:?\d\d)?)[\]】)|]? ?[|:]? ?"
)
_SLASH_RANK = late.regex(r"\[(\d{1,6})/(\d{1,6})\](?=\[[A-Z]{4,8}\])")  # `[2/3] c++ -MMD` is ninja's progress
_MARGIN = late.regex(r"> ?")
_QUOTE = late.regex(r"(?:> ?)+(?=\[|\w)")
_KERNEL = late.regex(
    r"(?:<\d{1,3}>)?(?:kern *:\w+ *: *)?"
    r"(?:\[ {0,8}\d{1,9}\.\d{6}(?:, *\d+)?\]|\[ *\+\d+\.\d+\]"
    r"|\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\]"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:\d\d) ?"
)
_SYSLOG = late.regex(
    r"(?:<\d{1,3}>)?(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)|1[4-9]\d{8}\.\d{6}) "
    r"(?!(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL|TRACE) |\d{4}-\d\d-\d\d |[IWEFDV]\d{4} )"
    # `Initializing distributed: ` behind a time is no host and its program
    r"(?=\S*[\d.-]|localhost |\S+ (?:kernel|[\w./-]+\[\d+\]):)"
    r"([\w.-]+) (kernel|[\w./-]+(?:\[\d+\])?): ?"
)
_LOGGER = late.regex(  # `logger -s`, which names no host
    r"(?:<\d{1,3}>)?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d ([\w./-]{1,60})\[(\d{1,9})\]: ?"
)
_CRI = late.regex(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d) std(?:out|err) [FP](?: |$)"
)  # /var/log/pods
_RFC5424 = late.regex(  # PRI 1 time host program pid msgid data
    r"<\d{1,3}>1 \d{4}-\d\d-\d\dT[\d:.]{8,15}(?:Z|[+-]\d\d:\d\d) "
    r"([\w.-]+) ([^\s\[\]]{1,48}) (\d{1,9}|-) \S{1,32} "
    r"(?:-|\[[^\]\n]{0,400}\]) ?(?:\ufeff)?"
)
_ELAPSED = late.regex(r"^\d\d:\d\d:\d\d\.\d{3,6} (?=\s*\S)")  # `| ts -s %H:%M:%.S`
_TAI64N = late.regex(r"@(4[0-9a-f]{15})([0-9a-f]{8}) ?")  # daemontools, runit
_TS = late.regex(
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?(?: |$)"
)  # `| ts`, `| ts "%b %d %H:%M:%.S"`
_TALOS = late.regex(r"([\w.-]+): kern: *\w+: \[([^\]]{19,40})\]: ?")
_IN_TEXT = (
    late.regex(r"\[rank[ _:-]?(\d{1,6})\]", re.IGNORECASE),
    late.regex(r"\[PG (?:ID )?\d+[^\]]{0,80}? Rank (\d{1,6})\]"),
    late.regex(  # and no `--node-rank=1` of a launcher's command line, and no `local rank: 0`
        r"(?<![\w-])(?<!local )(?<!node )(?<!group )(?<!machine )(?:global_|world_)?rank[=:] ?(\d{1,6})\b",
        re.IGNORECASE,
    ),
    late.regex(r"^rank (\d{1,6}) (?=(?:step|batch|epoch|iter(?:ation)?|loss|started|starting|ready|up)\b)"),
    late.regex(r"(?:^|\s)rank[_-]?(\d{1,6})\s+(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b"),
    late.regex(r"^[\W\d]*(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\W+)?rank (\d{1,6})(?:/\d{1,6})?: ", re.IGNORECASE),
)
_TP = late.regex(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: DP\d+)?(?: TP(\d{1,7}))(?: [A-Z]+\d+)*\] ?")


def clean(text: str) -> str:
    """Take colours, titles and NUL bytes out of a line; of a progress bar keep what is visible in the end."""
    if "\x1b" in text or "\x00" in text:
        mark, rest = marks.mark_of(text)
        text = mark + _ANSI.sub("", rest)
    return text


@lru_cache(maxsize=1024)  # the lines around two hits are the same, and are read once more where a log ends
def peel(text: str, style: Style = Style()) -> Envelope:
    """Take all prefixes off a line. Never raises; what is no prefix stays in `body`."""
    text = clean(text)
    number, said, text = marks.read(text)
    found = _peeled(text, style)
    return found if number is None else _of_record(found, number, said)


def _of_record(env: Envelope, number: int, said: marks.Facts) -> Envelope:
    """A line of a record: the line knows its rank and host better, the record its time."""
    if env.rank is not None and said.rank is not None and env.rank != said.rank:
        said = said._replace(local_rank=None)
    # a journal has the process that opened the stream, which all children of a unit share
    own = not said.program or said.rank is not None
    key = [*env.key, *(part for part in (said.writer, str(said.pid or "")) if part)]
    if said.rank is not None:
        key.append(f"rank {said.rank}")
    return env._replace(
        key=tuple(key),
        rank=said.rank if env.rank is None else env.rank,
        local_rank=said.local_rank if env.local_rank is None else env.local_rank,
        world=said.world if env.world is None else env.world,
        host=env.host or said.host,
        pid=said.pid if env.pid is None and own else env.pid,
        stamp=said.stamp or env.stamp,
        line=number,
        writer=env.writer or said.writer,
        kernel=env.kernel or said.program == "kernel",
        program=env.program or ("" if said.program == "kernel" else said.program),
    )


def _peeled(text: str, style: Style) -> Envelope:
    if text.startswith("{") and text.rstrip().endswith("}") and len(text) < 65536:
        found = _json_line(text, style)
        if found is not None:
            return found
    peeler = _Peeler(text, style)
    peeler.run()
    return peeler.envelope()


class _Peeler:
    """The state of peeling one line: where we are, and what was learnt on the way."""

    def __init__(self, text: str, style: Style) -> None:
        self.text = text
        self.style = style
        self.at = 0
        self.key: list[str] = []
        self.got: dict[str, Any] = {}

    def take(self, form: re.Pattern[str]) -> re.Match[str] | None:
        m = form.match(self.text, self.at)
        if m:
            self.at = m.end()
        return m

    def learn(self, **facts: Any) -> None:
        for name, value in facts.items():
            if value is not None:
                self.got.setdefault(name, value)

    def run(self) -> None:
        if self.style.margin:
            self.take(_MARGIN)
        if self.style.srun and (m := self.take(SRUN)):
            self.key.append(m[0].strip())
            # the daemon's words come through some task's pipe, and are of the step
            if not self.text.startswith("slurmstepd", self.at):
                self.learn(rank=whole(m[1]))
        elif ": kern" in self.text and (m := self.take(_TALOS)):
            self.learn(host=m[1], stamp=times.find(m[2]), kernel=True)
        elif self.style.label and (m := self.take(LABELS[self.style.label])):
            self.key.append(m[1])
            self.learn(stamp=times.find(m[0]), rank=_rank_in(m[1]), writer=m[1])
        elif self.style.lead and (m := self.take(_compiled(self.style.lead))):
            who = m["who"].strip()
            self.key.append(who)
            self.learn(writer=who, rank=_rank_in(who.strip(" \t:|>[]()")))
            self.learn(stamp=times.find(m["at"]) if m["at"] else None)
            if _named(lead := m[0][len(m["at"]) :]):
                self.learn(host=lead.strip(" \t:|"))
        elif self.style.host and (m := self.take(HOST)):
            self.key.append(m[1])
            self.learn(host=m[1], writer=m[1])
        for _ in range(8):
            which = _FAR if self.at >= 200 else _STAMP_KNOWN if "stamp" in self.got else _NEXT
            next_ = which.match(self.text, self.at)
            if next_ is None:
                break
            form, learn = _FORMS[str(next_.lastgroup)]
            m = form.match(self.text, self.at)
            assert m is not None
            self.at = m.end()
            learn(self, m)

    def envelope(self) -> Envelope:
        body = self.text[self.at :]
        head = body[:160]
        if "rank" not in self.got:
            for form in _IN_TEXT if "rank" in head.lower() else ():
                if m := form.search(head):
                    self.got["rank"] = whole(m[1])
                    break
        if "rank" not in self.got and self.style.column and (m := COLUMNS[self.style.column].match(self.text)):
            self.got["rank"] = whole(m[1])
        nameless = self.style.word and "rank" not in self.got and "writer" not in self.got
        if nameless and (m := _compiled(self.style.word).search(self.text, 0, NEAR)):
            self.got["writer"] = f"{m['word'].lower() or 'writer'}-{m['n']}"
        if "stamp" not in self.got and head:
            self.got["stamp"] = times.find(head)
        if not self.got.get("kernel") and "NVRM: " in head and body.lstrip().startswith("NVRM: "):
            self.got["kernel"] = True
        return Envelope(body=body, key=tuple(self.key), **self.got)


def _tee(p: _Peeler, m: re.Match[str]) -> None:
    name = "rank" if m[1].lower() == "rank" else "local_rank"
    if name == "rank" and "rank" in p.got and p.text[m.start() - 2 : m.start()] == "]:":
        p.got["local_rank"] = p.got.pop(
            "rank"
        )  # `[rank0]:[rank2]: `: of a role by the name of rank, whose local rank it is
    if name == "local_rank" and p.got.pop(name, None) is not None:  # who broke off inside its line, and who ended it
        p.key.clear()
    p.key.append(m[0].strip())
    p.learn(**{name: whole(m[2])})


def _mpi(p: _Peeler, m: re.Match[str]) -> None:
    p.key.append(m[1])
    p.learn(rank=whole(m[1]))


def _kube(p: _Peeler, m: re.Match[str]) -> None:
    p.key.append(m[1])
    p.learn(host=m[1], writer=m[1])


def _ray(p: _Peeler, m: re.Match[str]) -> None:
    part = _WORKER_TP.match(m[1])  # vLLM names its workers by their place in the tensor-parallel group
    rank = m[2] or (part[1] if part else None)
    p.key.append(m[3])
    p.learn(pid=whole(m[3]), host=m[4], rank=whole(rank) if rank else None)


@lru_cache(maxsize=256)
def _compiled(form: str) -> re.Pattern[str]:
    return re.compile(form)


def _named(lead: str) -> bool:
    """Whether what stands in front can be a host's name."""
    return HOST.match(lead + "x") is not None


def _rank_in(label: str) -> int | None:
    m = RANKED.search(label)
    return whole(m[1]) if m else None


def _of_tag(tag: str, pid: str) -> dict[str, object]:
    """What the tag of a local line says: `summ-rank2[10963]`, whose process is who handed it on."""
    return {"rank": _rank_in(tag), "writer": tag, **_tagged(tag)}


def _syslog_5424(p: _Peeler, m: re.Match[str]) -> None:
    """The process is who handed the line on: logger(1), or the unit's shell."""
    p.key.append(f"{m[2]}[{m[3]}]")
    p.learn(stamp=times.find(m[0]), host=m[1], rank=_rank_in(m[2]), **_tagged(m[2]))


def _tai64n(p: _Peeler, m: re.Match[str]) -> None:
    """Seconds since 1970 and 2^62, ten more than UTC: what daemontools' tai64n counts (libtai,
    tai_unix.c)."""
    seconds = int(m[1], 16) - (1 << 62) - 10 + int(m[2], 16) / 1e9
    p.learn(stamp=Stamp(seconds, "absolute", m[0].strip(), 1e-4))


def _tagged(tag: str) -> dict[str, object]:
    """`kernel:`, `train.sh[123]:`"""
    return {"kernel": True} if tag == "kernel" else {"program": tag.split("[")[0]}


_Form = tuple[re.Pattern[str], Callable[[_Peeler, re.Match[str]], None]]
_FORMS: dict[str, _Form] = {  # tried in this order
    "tee": (_TEE, _tee),
    "rank": (_RANK_WORD, lambda p, m: p.learn(rank=whole(m[1]))),
    "mpi": (_MPI, _mpi),
    "kube": (_KUBE, _kube),
    "ray": (_RAY, _ray),
    "quote": (_QUOTE, lambda p, m: p.learn(quoted=True)),
    "torchx": (_TORCHX, lambda p, m: None),
    "cri": (_CRI, lambda p, m: p.learn(stamp=times.find(m[0]))),
    "kernel": (_KERNEL, lambda p, m: p.learn(stamp=times.find(m[0]), kernel=True)),
    "cxx": (_CXX, lambda p, m: p.learn(stamp=times.find(m[0]))),
    "pylog": (_PYLOG, lambda p, m: p.learn(stamp=times.find(m[0]), pid=whole(m[2]))),
    "tp": (_TP, lambda p, m: p.learn(stamp=times.find(m[0]), rank=whole(m[1]))),
    "vllm": (_VLLM, lambda p, m: p.learn(stamp=times.find(m[1]))),
    "nccl": (_NCCL, lambda p, m: p.learn(host=m[1], pid=whole(m[2]), gpu=m[4], stamp=times.find(m[0]))),
    "syslog": (
        _SYSLOG,
        lambda p, m: p.learn(host=m[1], stamp=times.find(m[0]), rank=_rank_in(m[2].split("[")[0]), **_tagged(m[2])),
    ),
    "syslog5424": (_RFC5424, _syslog_5424),
    "logger": (_LOGGER, lambda p, m: p.learn(stamp=times.find(m[0]), **_of_tag(m[1], m[2]))),
    "tai64n": (_TAI64N, _tai64n),
    "epoch": (times.EPOCH, lambda p, m: p.learn(stamp=times.find(m[0]))),
    "elapsed": (_ELAPSED, lambda p, m: None),
    "ts": (_TS, lambda p, m: p.learn(stamp=times.find(m[0]))),
    "slash": (_SLASH_RANK, lambda p, m: p.learn(rank=whole(m[1]), world=whole(m[2]))),
    "stamped": (_STAMPED, lambda p, m: p.learn(stamp=times.find(m[0]))),
}


def _one_of(*left_out: str) -> re.Pattern[str]:
    """All forms as one, with an empty group behind each that tells which:
    most lines have one prefix or none, and this is one look."""
    return late.regex(
        "|".join(f"{form.pattern}(?P<{name}>)" for name, (form, _) in _FORMS.items() if name not in left_out)
    )


_NEXT, _STAMP_KNOWN, _FAR = _one_of(), _one_of("stamped"), _one_of("stamped", "syslog")


def _json_line(text: str, style: Style) -> Envelope | None:
    """A record among other lines, or journald's JSON. Logs that are nothing but records are unwrapped
    before."""
    record = records.load(text)
    found = records.body_of(record) if record is not None else None
    if record is None or found is None:
        return None
    body, said = found[1], records.facts(record)
    if found[0] == "log" and "stream" in record:  # json-file, Docker's default: a line as it was printed
        inner = peel(body.rstrip("\n"), style)
        return inner._replace(stamp=said.stamp or inner.stamp)
    kernel = said.program == "kernel"
    return Envelope(
        body + records.measured(record),
        rank=said.rank,
        local_rank=said.local_rank,
        world=said.world,
        host=said.host,
        pid=said.pid,
        stamp=said.stamp,
        kernel=kernel,
        program="" if kernel else said.program,
    )


__all__ = ["Envelope", "Style", "clean", "learn", "peel"]
