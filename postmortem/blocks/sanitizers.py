"""Reports of sanitizers, Valgrind and cuda-gdb, in the output of the process that they watched: a `fact` with its first stack.

    ==30122==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x603000002728 at pc 0x7f52565ac568 bp ...
    READ of size 4 at 0x603000002728 thread T0
        #0 0x7f52565ac567 in gather_row /opt/train/kernels.cpp:3

    WARNING: ThreadSanitizer: data race (pid=30159)
        #0 bump /opt/train/kernels.cpp:6 (kernels.so+0x133d)

    kernels.cpp:4:66: runtime error: signed integer overflow: 2147483647 + 5 cannot be represented in type 'int'

    ========= Invalid __global__ write of size 4 bytes
    =========     at scale_rows(float *, int)+0x150 in kernels.cu:33

    ==19940== Invalid read of size 8
    ==19940==    at 0x10AE23: Cache::lookup(int) (attn.cpp:7)

    CUDA Exception: Warp Illegal Address
    The exception was triggered at PC 0x7f5dbe1ff6c0 scale_rows(float*, int) (kernels.cu:33)

The diagnosis sees the same words for all: `sanitizer AddressSanitizer heap-buffer-overflow in gather_row (kernels.cpp:3)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from postmortem.documents import crash
from postmortem.formats.excerpt import Excerpt
from postmortem.formats.frames import Frames
from postmortem.library import Signature
from postmortem.model import Event
from postmortem.model.details import Details
from postmortem.model.digits import whole
from postmortem.system import forms

OPENER = Signature(
    ":sanitizer",
    r"ERROR: \w{2,12}Sanitizer: |WARNING: (?:Thread|Memory)Sanitizer: |:\d{1,6}:\d{1,4}: runtime error: "
    r"|========= (?:Invalid __|Invalid address|Program hit |Error: Race|Uninitialized __|Barrier error|Misaligned )"
    r"|CUDA Exception: \w|==\d{1,9}== (?:Process terminating with default action of signal|Invalid (?:read|write) of size"
    r"|Invalid free|Mismatched free|Conditional jump or move depends|Use of uninitialised|Possible data race)",
    after=8192,
    before=256,
)
LINES = 120  # of one report
_FORMS = forms.regexes("documents/crashes")


def parse(excerpt: Excerpt) -> Iterator[Event]:
    """Read the report that starts on the excerpt's line."""
    m = _FORMS["sanitizer"].search(excerpt.text)
    if m is None:
        return
    frames: Frames = []
    for line in islice(excerpt.block(), 1, LINES):
        body = line.envelope.body
        if _FORMS["sanitizer-end"].match(body) or (frames and not body.strip(" =0123456789")):
            break
        if f := _FORMS["sanitizer-frame"].match(body) or _FORMS["valgrind-frame"].match(body):
            if f["n"] in ("0", "at") and frames:
                break  # the stack of another access, or of the allocation
            frames.append((f["file"] or f["lib"] or "?", whole(f["line"] or "0"), f["func"].strip()))
        elif f := _FORMS["kernel-frame"].match(body):
            frames.append((f["file"] or "?", whole(f["line"] or "0"), f["func"].strip()))
    if m["file"] and not frames:
        frames = [(m["file"], whole(m["line"]), "?")]
    detail, _ = crash.detail_of(frames)
    tool = m["tool"] or ("UndefinedBehaviorSanitizer" if m["file"] else "compute-sanitizer")
    tool = "cuda-gdb" if m["cuda"] else "Valgrind" if m["pid_of_valgrind"] else tool
    kind = m["kind"] or m["behavior"] or m["device"] or m["cuda"] or m["memcheck"] or f"crash with {m['ended']}"
    kind = " ".join(kind.partition(" at 0x")[0].split())
    number = m["pid"] or m["pid_of_race"] or m["pid_of_valgrind"]
    pid = whole(number) if number else None
    fields: Details = crash.stack(frames) | {"tool": tool, "detail": kind}
    fields |= {"signature": f"sanitizer {tool} {kind} {detail.removeprefix('in ? ')}".rstrip()}
    fields |= {} if pid is None else {"pid": pid}
    yield excerpt.event("fact", excerpt.first, severity="error", fields=fields, pid=pid)
