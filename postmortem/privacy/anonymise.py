"""Hosts, users, addresses and paths out of an incident:
each replaced by a pseudonym, the same one everywhere.

    node-0112/rank3.log:81  alice@node-0112: [Errno 28] '/home/alice/exp7/ckpt.pt', peer 10.3.0.17:29500
    -> host-1/rank3.log:81  user-1@host-1: [Errno 28] '/home/user-1/dir-1/file-1.pt', peer address-1:29500

Pseudonyms are numbered by first appearance, sources in path order first, so the same input gives the same
bytes. Names are learnt where their place says what they are (the document's fields, home folders, NCCL and
syslog prefixes), then replaced wherever they stand. What everybody's machine has (`/usr/lib`,
`site-packages/torch/...`, `attempt_0`, `stderr.log`) stays, and so do loopback addresses: they tell nothing
about a place and much about a failure. Anonymising comes after redaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from ipaddress import ip_address
from typing import Any


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Fields of the document that hold names, not prose:
# whatever stands there is learnt before any text is rewritten.
HOST_FIELDS = {"host", "hosts", "peer", "master_addr"}
PATH_FIELDS = {"source", "path"}
KEPT_FIELDS = {
    "schema",
    "outcome",
    "category",
    "pattern",
    "role",
    "kind",
    "state",
    "confidence",
    "time",
    "at",
    "fingerprint",
    "library",
}

PUBLIC = _words(
    "usr bin sbin lib lib32 lib64 local share etc dev shm proc self sys fs cgroup run var log tmp opt home "
    "root mnt srv users data kubelet pods containers docker kernel logs log journal site-packages "
    "dist-packages python conda miniconda3 anaconda3 envs venv .venv checkpoints ckpt checkpoint src "
    "torchelastic nvidia cuda infiniband net workspace job jobs runs run node nodes ranks rank train.py "
    "main.py run.py trainer.py pretrain.py finetune.py launch.py train.sh run.sh __main__.py __init__.py "
    "error.json stdout stderr agent launcher console none slurm ray session_latest w"
)
# From one of these on, a path is public: its code is.
PROJECTS = _words(
    "torch pytorch torchvision gloo nccl numpy pandas lightning pytorch_lightning transformers accelerate "
    "deepspeed megatron apex ray datasets triton multiprocessing concurrent asyncio importlib encodings "
    "ctypes"
)
PUBLIC_FORM = re.compile(
    r"none_\w{8}|torch_\d+(?:_\d+)*|(?:python|cuda|lib|pt)[-_]?[\d.]+|(?:attempt|rank|node|host|gpu"
    r"|local_rank|proc|worker|task|step|epoch|group)?[-_.]?\d{1,6}"
    r"|(?:attempt|rank|worker|local_rank)[-_]?\d*[-_.]?(?:stdout|stderr|log|out|err)?|\.{1,2}|~|[A-Z]"
    r"|lib[\w.+-]+\.so[\d.]*"
)
LOG_NAME = re.compile(
    r"(?:rank|worker|local_rank|attempt|std(?:out|err)|dmesg|kern|syslog|messages|journal|agent|launcher"
    r"|console|torchrun|train|nccl|error|"
    r"slurm|output|stack|pyspy|py-spy|events|nvidia-smi|sacct|iso|bundle|out|err|log|[-_.\d])+(?:\.(?:log"
    r"|txt|json|out|err|gz|zst|tar|zip|pkl|bin))*"
)
CODE_FILE = re.compile(
    r"(?<![\w./\\-])(?P<s>[A-Za-z_][\w-]{0,80}\.(?:py|ipynb|sh|sbatch|ya?ml|toml))(?![\w/])"
)
SUFFIX = re.compile(r"(?:\.(?:tar|[A-Za-z][A-Za-z0-9]{0,7}))*\.[A-Za-z][A-Za-z0-9]{0,7}$")

WORD_START, WORD_END = r"(?<![A-Za-z0-9_.-])", r"(?![A-Za-z0-9_])"
DOMAIN = (
    r"(?P<domain>(?:\.(?!(?:log|txt|err|out|json|gz|zst|xz|bz2|tar|tgz|zip|pkl|bin|py"
    r"|sh)\b)[a-z0-9-]{1,62})*)"
)
USER_AT = (
    re.compile(
        r"/(?:home|Users|scratch/users?|export/home)/(?P<s>[A-Za-z_][\w.-]{0,63})(?=/|[\s'\":,)\]]|$)"
    ),
    re.compile(
        r"(?i)\b(?:user(?:name)?|owner|logname)\s{0,2}[=:]\s{0,2}['\"]?(?P<s>[a-z_][a-z0-9._-]{1,31})"
        + WORD_END
    ),
    re.compile(r"\buid=\d+\((?P<s>[\w.-]{1,32})\)"),
    re.compile(r"(?<![\w.+-])(?P<s>[A-Za-z_][\w.+-]{0,63})@(?=[A-Za-z0-9])"),
)
HOST_AT = (
    # debug.cc prints host:pid:tid
    re.compile(r"(?m)^(?:\[[^\]]{0,40}\]:?\s*)*(?P<s>[A-Za-z][\w.-]{1,80}):\d+:\d+ \[\d+\] NCCL "),
    re.compile(
        r"(?m)^\w{3} [ \d]\d \d\d:\d\d:\d\d (?P<s>[A-Za-z][\w.-]{1,80}) (?:kernel|systemd|slurm\w*|kubelet"
        r"|sshd|sudo)\b"
    ),
    re.compile(
        rf"(?i)\b(?:master_addr|hostname|nodelist|nodename|rdzv_endpoint)"
        rf"['\"]?\s{{0,2}}[=:]\s{{0,2}}['\"]?(?P<s>[a-z][\w.-]{{1,80}}){WORD_END}"
    ),
    # socket.cpp: [host]:port, (host, port)
    re.compile(r"[\[(](?P<s>[A-Za-z][\w-]{0,62}(?:\.[\w-]{1,62}){0,6})(?:\]:|, )\d{2,5}\b"),
)  # fmt: skip
NOT_NAMES = _words(
    "root nobody localhost none null true false unknown user users default admin ubuntu self any all rank "
    "host"
)
URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]{1,15}://)(?P<host>[^\s/'\"<>:@\]]{1,200})"
    r"(?P<rest>(?::\d+)?(?:/[\w.@+,=~%-]+)*)"
)
MAC = re.compile(r"(?<![0-9A-Fa-f:])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![0-9A-Fa-f:])")
V4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)")
V6 = re.compile(r"(?<![\w:.])(?=[0-9a-fA-F]*:)[0-9a-fA-F:]{3,39}(?:%\w{1,15})?(?![\w:])")
PATH = re.compile(
    r"(?<![\w./\\-])(?:~|\.{1,2})?/(?:[\w.@+,=~%-]+/)*[\w.@+,=~%-]*"
    r"|(?<![\w./\\:-])(?:[\w.@+=-]+/)+[\w.@+=-]*\.[A-Za-z]\w{0,7}(?![\w/])"
)


class Anonymiser:
    """Learns names and replaces them; one for each incident."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._words: dict[str, str] = {}
        self._known: re.Pattern[str] | None = None

    # ── learning ────────────────────────────────────────────────────────────────────────────────────────────

    def learn(self, value: object, field: str = "") -> None:
        """Take the names of a JSON-like value:
        hosts and paths from their fields, users and hosts from its texts."""
        if isinstance(value, str):
            if field in HOST_FIELDS:
                self._host(value)
            elif field not in KEPT_FIELDS:
                self.learn_text(value)
        elif isinstance(value, Mapping):
            for key, item in value.items():
                self.learn(item, str(key))
        elif isinstance(value, (list, tuple)):
            for item in value:
                self.learn(item, field)

    def learn_text(self, text: str) -> None:
        for pattern in USER_AT:
            for match in pattern.finditer(text):
                self._user(match["s"].rstrip("."))
        for pattern in HOST_AT:
            for match in pattern.finditer(text):
                if not SOURCE_NAME.search(match["s"]):
                    self._host(match["s"].rstrip("."))

    def learn_paths(self, paths: Iterable[str]) -> None:
        """Number the parts of the sources' paths in their order;
        a path that no text shows to be one becomes a word."""
        for path in paths:
            found = self.path(path)
            if path and self.text(path) != found:
                self._word(path, found)

    def _host(self, name: str) -> None:
        short = name.split(".")[0]
        if len(short) > 1 and short.lower() not in NOT_NAMES and not _address(name) and not short.isdecimal():
            self._word(short, self._name("host", short.lower()))

    def _user(self, name: str) -> None:
        if len(name) > 1 and name.lower() not in NOT_NAMES and name not in self._words:
            self._word(name, self._name("user", name))

    def _word(self, word: str, name: str) -> None:
        if word not in self._words:
            self._words[word] = name
            self._known = None

    def _name(self, kind: str, key: str) -> str:
        if (kind, key) not in self._names:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._names[kind, key] = f"{kind}-{self._counts[kind]}"
        return self._names[kind, key]

    # ── replacing ───────────────────────────────────────────────────────────────────────────────────────────

    def text(self, text: str) -> str:
        """Return a text without names. What a path says is replaced part by part, addresses whole."""
        if "://" in text:
            text = URL.sub(self._url, text)
        if "/" in text:
            text = PATH.sub(lambda m: self.path(m[0]), text)
        if ":" in text:
            text = V6.sub(self._ip, MAC.sub(lambda m: self._name("address", m[0].lower()), text))
        text = V4.sub(self._ip, text)
        text = self._known_words(text)
        return CODE_FILE.sub(lambda m: self._part(m["s"], last=True), text) if "." in text else text

    def path(self, path: str) -> str:
        """`/home/alice/exp7/ckpt.pt` -> `/home/user-1/dir-1/file-1.pt`."""
        parts = re.split(r"(!?/)", path)
        out: list[str] = []
        public = False
        for place, part in enumerate(parts):
            public = public or part in PROJECTS
            out.append(
                part if place % 2 or public or not part else self._part(part, last=place == len(parts) - 1)
            )
        return "".join(out)

    def _part(self, part: str, last: bool) -> str:
        if part in self._words:
            return self._words[part]
        if _public(part):
            return part
        found = self._known_words(part)
        if found != part and _public(re.sub(r"(?:host|user)-\d+", "", found)):
            return found
        suffix = SUFFIX.search(part) if last else None
        return self._name("file" if suffix else "dir", part) + (suffix[0] if suffix else "")

    def _known_words(self, text: str) -> str:
        if not self._words:
            return text
        if self._known is None:
            longest = sorted(self._words, key=lambda word: (-len(word), word))
            # a host's domain goes with it; a file's suffix does not
            self._known = re.compile(
                rf"{WORD_START}(?:{'|'.join(map(re.escape, longest))}){DOMAIN}{WORD_END}(?!-[A-Za-z0-9])"
            )
        return self._known.sub(self._replaced, text)

    def _replaced(self, match: re.Match[str]) -> str:
        return self._words[match[0][: len(match[0]) - len(match["domain"])]]

    def _url(self, match: re.Match[str]) -> str:
        host = match["host"]
        kept = host in self._words or _address(host) or host.lower() in NOT_NAMES
        return (
            match["scheme"]
            + (host if kept else self._name("address", host.lower()))
            + self.path(match["rest"])
        )

    def _ip(self, match: re.Match[str]) -> str:
        found = _address(match[0].partition("%")[0])
        return (
            match[0]
            if found is None or found.is_loopback or found.is_unspecified
            else self._name("address", str(found))
        )

    def document(self, value: Any, field: str = "") -> Any:
        """Return a JSON-like value of the same shape without names."""
        if isinstance(value, str):
            if field in PATH_FIELDS:
                return self.path(value)
            return value if field in KEPT_FIELDS else self.text(value)
        if isinstance(value, Mapping):
            return {key: self.document(item, str(key)) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.document(item, field) for item in value]
        return value


SOURCE_NAME = re.compile(r"\.(?:py|cpp|cc|cu|c|h|hpp|so|log|txt|json)$")


def _public(part: str) -> bool:
    bare = part.strip(".-_") if part.strip(".-_") else ""
    return bare.lower() in PUBLIC or not bare or bool(PUBLIC_FORM.fullmatch(part) or LOG_NAME.fullmatch(part))


def _address(words: str) -> Any:
    try:
        found = ip_address(words)
    except ValueError:
        return None
    return None if found.version == 6 and words.endswith("::") else found


def anonymised(incident: Any) -> Any:
    """Return the incident with pseudonyms in its document and in its timeline."""
    names = Anonymiser()
    document = incident.document
    for source in document.get("sources") or []:
        names.learn(source)
    names.learn(document)
    timeline = incident.timeline
    for event in () if timeline is None else timeline.events:
        if event.host:
            names.learn(event.host, "host")
        names.learn_text(event.text)
    names.learn_paths(str(source.get("path") or "") for source in document.get("sources") or [])
    cleaned = names.document(document)
    if timeline is None:
        return replace(incident, document=cleaned)
    return replace(
        incident,
        document=cleaned,
        timeline=replace(timeline, events=tuple(map(_event(names), timeline.events))),
    )


def _event(names: Anonymiser) -> Callable[[Any], Any]:
    paths: dict[str, str] = {}

    def clean(event: Any) -> Any:
        source = event.where.source
        paths.setdefault(source, names.path(source))
        where = event.where._replace(source=paths[source])
        host = names.text(event.host) if event.host else event.host
        return event._replace(text=names.text(event.text), where=where, host=host, context=(), fields={})

    return clean


__all__ = ["Anonymiser", "anonymised"]
