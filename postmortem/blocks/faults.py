r"""What the system refused, by the structure of the line: the library, the call, the error's number or text.

    misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.5<36541> failed : No route to host
                                                                      nccl socket/connect EHOSTUNREACH
    |CCL_ERROR| base_thread.cpp:36 start: error while creating worker thread #0 pthread_create returns 22
                                                                      oneccl thread/pthread_create EINVAL
    OSError: [Errno 27] File too large: 'state.pkl'                   python file/- EFBIG path
    what():  filesystem error: cannot create directories: Disk quota exceeded [/home/u/.cache]
                                                                      - file/- EDQUOT

C libraries end a message with strerror(errno), Python with `[Errno N] text`, Rust with `(os error N)`, HDF5
with `errno = N`: so the reason is known where nobody knows the sentence around it. torch repeats NCCL's
last warning below `Last error:` (torch/csrc/distributed/c10d/NCCLUtils.cpp); there it decides, and is read
as the warning that it was.

Out: events of kind `fault`; `says` is what patterns `on: fault` read. Retries and remarks
(`NCCL INFO`) are no faults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from postmortem.formats.excerpt import Excerpt, Line
from postmortem.library import Signature
from postmortem.model import Event
from postmortem.model.digits import whole
from postmortem.privacy import cut
from postmortem.system import lazy as late

# Linux, include/uapi/asm-generic/errno*.h; glibc's strerror
ERRORS: dict[str, tuple[int, tuple[str, ...]]] = {
    "ENOSPC": (28, ("No space left on device",)),
    "EDQUOT": (122, ("Disk quota exceeded",)),
    "EFBIG": (27, ("File too large",)),
    "EMFILE": (24, ("Too many open files",)),
    "ENFILE": (23, ("Too many open files in system",)),
    "EIO": (5, ("Input/output error",)),
    "ESTALE": (116, ("Stale file handle", "Stale NFS file handle")),
    "EROFS": (30, ("Read-only file system",)),
    "ENAMETOOLONG": (36, ("File name too long",)),
    "EREMOTEIO": (121, ("Remote I/O error",)),
    "ENOTCONN": (107, ("Transport endpoint is not connected",)),
    "ESHUTDOWN": (108, ("Cannot send after transport endpoint shutdown",)),
    "EUCLEAN": (117, ("Structure needs cleaning",)),
    "ENOLCK": (37, ("No locks available",)),
    "ENOMEM": (12, ("Cannot allocate memory",)),
    "EAGAIN": (11, ("Resource temporarily unavailable",)),
    "EACCES": (13, ("Permission denied",)),
    "ESRCH": (3, ("No such process",)),
    "EPERM": (1, ("Operation not permitted",)),
    "ENOENT": (2, ("No such file or directory",)),
    "ENXIO": (6, ("No such device or address",)),
    "ENODEV": (19, ("No such device",)),
    "EINVAL": (22, ("Invalid argument",)),
    "EBUSY": (16, ("Device or resource busy",)),
    "EFAULT": (14, ("Bad address",)),
    "EPROTO": (71, ("Protocol error",)),
    "ENOTSUP": (95, ("Operation not supported",)),
    "ETIMEDOUT": (110, ("Connection timed out",)),
    "ECONNREFUSED": (111, ("Connection refused",)),
    "ECONNRESET": (104, ("Connection reset by peer",)),
    "ECONNABORTED": (103, ("Software caused connection abort",)),
    "EPIPE": (32, ("Broken pipe",)),
    "EHOSTUNREACH": (113, ("No route to host",)),
    "ENETUNREACH": (101, ("Network is unreachable",)),
    "ENETDOWN": (100, ("Network is down",)),
    "EHOSTDOWN": (112, ("Host is down",)),
    "EADDRNOTAVAIL": (99, ("Cannot assign requested address",)),
    "EADDRINUSE": (98, ("Address already in use",)),
    "EAFNOSUPPORT": (97, ("Address family not supported by protocol",)),
}  # fmt: skip
FILES = (  # of these the text alone says what is wrong, whoever prints it
    "ENOSPC", "EDQUOT", "EFBIG", "EMFILE", "ENFILE", "EIO", "ESTALE", "EROFS", "ENAMETOOLONG", "EREMOTEIO",
    "ENOTCONN", "ESHUTDOWN", "EUCLEAN", "ENOLCK",
)  # fmt: skip
_NUMBER = {number: name for name, (number, _) in ERRORS.items()}
_NAME = {text: name for name, (_, texts) in ERRORS.items() for text in texts}
_LONGEST = sorted(_NAME, key=len, reverse=True)
_OF_FILES = [text for name in FILES for text in ERRORS[name][1]]

OPENER = Signature(":system-error", "(?:" + "|".join(re.escape(t) for t in _OF_FILES) + ")", after=512, before=512)
LIBRARY = Signature(
    ":library-complaint",
    (
        r"(?:NCCL WARN [\w(]|\.(?:h|cc|cu):\d+ WARN [A-Z]|Last [Ee]rror:"
        r"|Last NCCL warning[(]error[)] log entry|prov_errno: |\|CCL_ERROR\| |oneCCL: |UCX  (?:ERROR|FATAL) "
        r"|\[ERROR\] HCC[LP]\(|\b(?:btl|oob)_tcp_\w+\.c:\d)"
    ),
    after=4096,
    before=512,
)
FAR = 8  # lines below `Last error:` in which its text starts

_LAST = late.regex(
    r"(?:NCCL )?Last [Ee]rror:|Last NCCL warning\(error\) log entry \(may be unrelated\)"
)  # torch, its nccl2; XLA
# an error's text stands behind what failed, or alone; in the middle of a sentence it is prose
_TEXT = late.regex(
    r"(?:^|[:(\['\"=\]-] ?|\b(?:with|error|returned|returns|failed|strerror|errno|code|message|ERROR),? )"
    r"(" + "|".join(re.escape(t) for t in _LONGEST) + r")(?=$|[\s]*[.,;:)\]'\"\[(]|, | errno| on dev)"
)
_CODE = late.regex(
    r"(?:\[[Ee]rrno |\berrno ?[=:]? ?|\(os error |\bpthread_create (?:returns|failed:?|returned) (?:error )?)"
    r"(\d{1,3})\b"
)
_SPEAKERS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("nccl", late.regex(r"(?:NCCL|\.(?:h|cc|cu):\d+) WARN (?P<text>.+)")),  # up to 2.3 without its name
    ("ofi", late.regex(r"(?P<text>^.*\bprov_errno: .*)|libfabric:\d[^<]{1,200}<\w+>(?P<text2> .*)")),
    ("oneccl", late.regex(r"(?:\|CCL_ERROR\|(?: [\w./]+:\d+)?|oneCCL:(?: [\w./]+:\d+)?)(?P<text> .+)")),
    ("ucx", late.regex(r"\bUCX +(?:ERROR|FATAL) +(?P<text>.+)")),
    ("hccl", late.regex(r"\[ERROR\] HCC[LP]\([^)]{0,80}\)(?P<text>.+)")),
    ("openmpi", late.regex(r"\b(?:btl|oob|mtl)_\w+\.c:\d+(?::\w+\])?(?P<text> .+)")),
    ("gloo", late.regex(r"\[[^\]]{0,300}gloo/[^\]]{1,120}:\d+\](?P<text> .+)")),
)
_LOUD = late.regex(
    r"\b(?:ERROR|FATAL|CRITICAL|[Ee]rror|[Ff]ail(?:ed|ure)|FAILED|[Cc]annot|[Cc]ould not|[Uu]nable"
    r"|Exception)\b"
    r"|\bwhat\(\)"
    r"|[a-z]Error\b|^E\d{4} "
)
_OF_TOOL = late.regex(r"^[\w./-]{1,80}: (?:line \d+: )?\S.{0,300}: [A-Z][\w /-]+$")  # `tee: train.log: File too large`
_AGAIN = late.regex(r"\bretr(?:y|ying|ies)\b|NCCL INFO|\b(?:INFO|DEBUG|TRACE)\b|\bwill try\b|\bignor(?:ed|ing)\b")
_RETRIES = late.regex(r"NCCL INFO .{0,200}\bretrying\b")
# the first that stands in the text says what was asked of the system
_CALLS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("cma", late.regex(r"\b(process_vm_(?:readv|writev))\b")),
    ("shm", late.regex(r"(shm_(?:open|posix)|fallocate|ftruncate|shm(?:get|at)|/dev/shm|[Ss]hared [Mm]emory)")),
    ("thread", late.regex(r"(pthread_create|worker thread|thread creation|\bv?fork\b|\bclone\b)")),
    ("verbs", late.regex(r"\b(ibv_\w+|rdma_\w+|fi_\w+|uct_\w+|ibv\b)")),
    ("cuda", late.regex(r"([Cc]uda failure|(?:CUDA|HIP) (?:error|failure)|\b(?:cu(?:da)?|hip)[A-Z]\w+)")),
    ("library", late.regex(r"\b(dlopen|dlsym|[Ss]hared object file)\b")),
    (
        "socket",
        late.regex(
            r"\b([Cc]onnect(?:ing|ion)?|bind|listen|[Aa]ccept|recv|send|socket|poll|[gs]etsockopt|peer)\b"
        ),
    ),
    ("memory", late.regex(r"\b([mc]alloc|realloc|mmap|mlock|[Cc]lloc|posix_memalign)\b")),
    ("file", late.regex(r"\b(open|read|write|fsync|close|stat|rename|unlink|fread|fwrite|mkdir|flock)\b")),
)  # fmt: skip
DEVICES = ("EIO", "EREMOTEIO", "ENOTCONN", "ESHUTDOWN")
TELLING = ("verbs", "thread")  # of these the call alone says who asked
SOCKET = ("ETIMEDOUT", "ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "EPIPE", "EHOSTUNREACH", "ENETUNREACH",
          "ENETDOWN", "EHOSTDOWN", "EADDRNOTAVAIL", "EADDRINUSE", "EAFNOSUPPORT")  # fmt: skip
_OF_SOCKETS = late.regex(r"socket|ssl\b|asyncio|selectors|connection\.py|http|urllib|grpc|paramiko")
_PEER = late.regex(r"(?:\[(?P<v6>[0-9a-fA-F:.%\w-]{2,60})\]:\d+|(?P<nccl>[\w.:%-]{2,80}?)<\d+>)")
_PATH = late.regex(r"['\"‘](?P<path>/?[^'\"’\n]{1,300})['\"’]|(?P<bare>/[\w.+-][^\s:,\"']{1,300})")
_CUDA_SAYS = late.regex(r"(?:[Cc]uda failure|CUDA (?:error|failure)|HIP failure)(?: \d+)?:? '(?P<text>[^']{1,120})'")


class Fault(NamedTuple):
    """One thing that the system refused. `reason` is the errno's name, or CUDA's words in quotes."""

    library: str
    domain: str
    call: str
    reason: str
    peer: str = ""
    path: str = ""

    @property
    def says(self) -> str:
        """`nccl socket/connect ECONNREFUSED peer:link-local`: what patterns read."""
        tail = f" peer:{_kind_of(self.peer)}" if self.peer else " path" if self.path else ""
        return f"{self.library} {self.domain}/{self.call or '-'} {self.reason}{tail}"


def parse(excerpt: Excerpt) -> Iterator[Event]:
    """Read a line with the text of an error of files in it, where it stands as a complaint."""
    body = excerpt.envelope.body
    if excerpt.envelope.kernel or excerpt.source.kind == "kernel" or speaker_of(body)[0]:
        return
    loud = _OF_TOOL.match(body) or _LOUD.search(_TEXT.sub(" ", body[:4000]))  # `Input/output error` is no level
    if loud and not _AGAIN.search(body) and (found := read(body)) is not None:
        yield _event(excerpt, next(excerpt.following()), found)


def parse_library(excerpt: Excerpt) -> Iterator[Event]:
    """Read a communication library's complaint, or the last of them as torch repeats it."""
    body = excerpt.envelope.body
    if _LAST.search(body):
        line = _last_error(excerpt, body)
        if line is not None:
            said = line.envelope.body.strip()
            yield _event(excerpt, line, read(said, "nccl"), warned=cut(f"x.cc:0 NCCL WARN {said}", 2000))
        return
    library, said = speaker_of(body)
    if _tried_again(excerpt):
        return
    if library and not _AGAIN.search(said) and (found := read(said, library)) is not None:
        yield _event(excerpt, next(excerpt.following()), found)


def _tried_again(excerpt: Excerpt) -> bool:
    """Whether the writer says in its next lines that it goes on trying: NCCL warns of each attempt to
    connect."""
    own = excerpt.block()
    next(own)
    return any(_RETRIES.search(line.envelope.body) for _, line in zip(range(2), own, strict=False))


def speaker_of(body: str) -> tuple[str, str]:
    """The library that speaks in a line, and what it says; empty where none is known."""
    for name, form in _SPEAKERS:
        if m := form.search(body[:4000]):
            said = m.groupdict()
            return name, (said["text"] or said.get("text2") or "").strip()
    return "", body


def _last_error(excerpt: Excerpt, body: str) -> Line | None:
    """The line that holds the last error: below the words, or behind them where a logger kept it in one
    line."""
    lines = excerpt.block()
    first = next(lines)
    head = _LAST.search(body)
    rest = body[head.end() if head else 0 :].replace("\\n", "\n").strip(" \n\"'")
    if rest:
        return Line(first.number, first.text, first.envelope._replace(body=rest.split("\n")[0]))
    for _, line in zip(range(FAR), lines, strict=False):
        if line.envelope.body.strip():
            return line
    return None


def read(text: str, library: str = "", inner: str = "") -> Fault | None:
    """What a complaint says of the system; None if it names no error. `inner` is where an exception was
    raised."""
    text = cut(text, 2000)
    if m := _CUDA_SAYS.search(text):
        return Fault(library or "-", "cuda", "", f"'{m['text']}'")
    reason, at = _reason(text)
    if not reason:
        return None
    domain, call = _asked(text[:at] if at else text, reason)
    if not library and reason not in FILES and domain not in TELLING:
        return None
    if m := dict(_CALLS)["shm"].search(text):  # Python names the file behind the reason
        domain, call = "shm", m[1].lower().split()[0].strip("/")
    if library and domain == "file" and reason in DEVICES:
        domain = "verbs"  # a communication library's device, and no disk
    if not library and domain not in ("shm", *TELLING):
        domain = "socket" if _OF_SOCKETS.search(inner) and reason in ("ENOTCONN", "ESHUTDOWN") else "file"
    peer = _PEER.search(text)
    path = None if peer else _PATH.search(text)
    return Fault(
        library or "-",
        domain,
        call,
        reason,
        (peer["v6"] or peer["nccl"]) if peer else "",
        (path["path"] or path["bare"]) if path else "",
    )


def _reason(text: str) -> tuple[str, int]:
    """The error's name, and where it stands."""
    if m := _TEXT.search(text):
        return _NAME[m[1]], m.start(1)
    if m := _CODE.search(text):
        return _NUMBER.get(whole(m[1]), ""), m.start(1)
    return "", 0


def _asked(text: str, reason: str) -> tuple[str, str]:
    """Which part of the system was asked, and by which call."""
    for domain, form in _CALLS:
        if m := form.search(text):
            call = m[1].lower().split()[0].strip("/")
            return ("socket" if reason in SOCKET and domain in ("memory", "file") else domain), call
    return ("socket" if reason in SOCKET else "file" if reason in FILES else "system"), ""


def _kind_of(peer: str) -> str:
    """No other host can reach a `link-local` address; 127.0.1.1 is what Debian's /etc/hosts calls the host
    itself."""
    if peer.startswith("169.254.") or peer.lower().startswith("fe80:"):
        return "link-local"
    if peer.startswith("127.") and not peer.startswith("127.0.0.1"):
        return "loopback-alias"
    return "loopback" if peer.startswith(("127.", "::1", "localhost")) else "address"


def _event(excerpt: Excerpt, line: Line, found: Fault | None, warned: str = "") -> Event:
    return excerpt.event("fault", line, fields=fields_of(found) | ({"warned": warned} if warned else {}))


def fields_of(found: Fault | None) -> dict[str, object]:
    """A fault's fields; patterns read `says`."""
    if found is None:
        return {}
    named = {"peer": found.peer, "path": found.path, "detail": _words(found), "library": found.library}
    return {"says": found.says, **{k: v for k, v in named.items() if v}}


def _words(found: Fault) -> str:
    """The reason as people write it."""
    return ERRORS[found.reason][1][0] if found.reason in ERRORS else found.reason.strip("'")
