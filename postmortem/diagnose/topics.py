"""What an error is about of which only the words are known.

    RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)       environment
    PMIX ERROR: NOT-FOUND in file server/pmix_server.c at line 229                       environment
    MPID_Init(441).......:  MPIR_pmi_init(110)...: PMI_Init returned 1                   rendezvous

No list holds all messages, but libraries and drivers speak of the same few things in the same few words. A
pattern that says only that something failed (`topic` in its file) takes its category from them: from its own
line, or also from the errors right above. Of two words in a line the one that is nearer to a cause counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.formats.excerpt import CONTEXT
from postmortem.model import Event

MOST = 600  # characters of a line
WORDS = {
    "gpu-oom": (
        r"out of (?:device|GPU|HBM|video) memory|OUT_OF_(?:DEVICE_)?MEMORY|CUBLAS_STATUS_ALLOC_FAILED"
        r"|\b(?:CUDA|HIP|NPU|XPU|MPS|XLA\S{0,10}) (?:ran )?out of memory|RESOURCE_EXHAUSTED"
    ),
    "host-oom": r"\bbad_alloc\b|[Cc]annot allocate memory|\bMemoryError\b|\bOOM[-_ ]?(?:[Kk]ill|[Cc]ontroller)",
    "gpu-fault": (
        r"\b(?:CUDA|HIP|NPU|ACL)(?: runtime| driver)? [Ee]rror|illegal (?:memory access|address|instruction)"
        r"|device-side assert|[Mm]emory access fault|GPU (?:page )?fault|\b(?:cuda|hip)Error"
        r"|DEVICE_LOST|\b[Dd]evice (?:is |was )?(?:lost|hung)\b"
    ),
    "native-crash": r"[Ss]egmentation fault|SIGSEGV|SIGABRT|null pointer|double free|heap corruption|core dumped",
    "storage": (
        r"[Nn]o space left|[Dd]isk quota|[Rr]ead-only file ?system|[Ss]tale file handle|Input/output error"
        r"|No such file or directory|[Pp]ermission denied:? ['\"/]|(?:\bopen\(|['\"]/)[^:\n]{1,200}: [Pp]ermission denied"
        r"|(?:[Dd]irectory|[Pp]ath|[Ff]older)\b[^.]{0,80}(?:not found|not exist|doesn't exist|missing)"
    ),
    "environment": (
        r"[Dd]river\b[^.]{0,40}(?:too old|insufficient|mismatch|not found|not loaded|version)"
        r"|version\b[^.]{0,40}(?:mismatch|too old|incompatible)|[Ii]ncompatib|undefined symbol"
        r"|[Nn]ot (?:been )?(?:built|compiled) (?:with|for)|shared object file|[Nn]o module named"
        r"|(?:[Cc]an ?not|[Uu]nable to|[Ff]ailed to|[Cc]ould(?: not|n't)) load|[Nn]ot installed|[Pp]lease install"
        r"|[Ii]s not supported|[Uu]nsupported|[Ii]nvalid usage|[Ii]nvalid \w+ type|command not found"
        r"|[Uu]n(?:recognized|known) (?:option|argument|command)|environment variable|PMIX ERROR"
        r"|\b(?:set|export|unset) [A-Z][A-Z0-9_]{3,}=|\b[Pp]lugin\b"
        r"|\b[Dd]evices? (?:(?:is |are |already )+(?:acquired|busy|in use)|acquire failed)"
    ),
    "network": (
        r"\bibv_|\bOFI\b|libfabric|\bfi_[a-z]+\b|\bUCX\b|\buc[pt]_|\bEFA\b|RDMA|[Ii]nfini[Bb]and|\bQP\b"
        r"|\b(?:[Ff]ailed|[Uu]nable|not able) to (?:connect|transfer|reach|send)\b|\b[Cc]an ?not (?:connect|reach)\b"
        r"|retry count exceeded|[Nn]o route to host|[Nn]etwork is unreachable|\bNET/"
    ),
    "rendezvous": (
        r"[Rr]endezvous|\bPMI_?Init|\bPMI\d?\b|MPI_Init|\bbootstrap (?:network|root|failed|barrier|server)"
        r"|[Cc]onnection refused|TCPStore|while trying to connect to|waiting for clients"
        r"|getaddrinfo|Name or service not known|[Aa]ddress already in use"
        r"|[Cc]onnect(?:ion)? time(?:d )?-?out"
    ),
    "hang": r"[Tt]imed[ -]?out|[Tt]ime-?out|TimeoutError|deadlock",
    "peer-lost": r"[Cc]onnection (?:reset|closed|aborted)|[Bb]roken ?[Pp]ipe|died unexpectedly",
    "scheduler": r"[Pp]reempt|[Ee]vict|[Tt]ime limit|termination is imminent",
}
_WORDS = {category: re.compile(form) for category, form in WORDS.items()}


def of(text: str) -> str:
    """The category that a message's words tell; empty where they tell none."""
    return next((name for name, form in _WORDS.items() if form.search(text, 0, MOST)), "")


def named(case: Case, root: Claim) -> Claim:
    """The claim with the category that the words around it tell, where its pattern has none of its own."""
    if not root.pattern.topic:
        return root
    found = next(filter(None, map(of, _lines(case, root))), "")
    return replace(root, pattern=replace(root.pattern, category=found)) if found else root


def _lines(case: Case, root: Claim) -> Iterator[str]:
    """What it says itself, the lines below where the message stands there; and those above it, the nearer
    first, where it says nothing by itself."""
    e = root.event
    yield str(e.fields.get("line") or e.text)
    if root.pattern.topic == "around" or str(e.fields.get("line") or "").endswith(":"):
        yield from filter(_is_said, e.context[e.before + 1 : e.before + 3])
    if root.pattern.topic == "around":
        yield from filter(_is_said, reversed(e.context[max(0, e.before - CONTEXT) : e.before]))
        above = [x for x in case.by_source[e.where.source] if 0 < _line(e) - _line(x) <= CONTEXT]
        yield from (x.text for x in sorted(above, key=_line, reverse=True))


def _is_said(line: str) -> bool:
    """Whether a line is no frame of a traceback and no code."""
    return not line.startswith(("  File ", "    ", "\t"))


def _line(e: Event) -> int:
    return e.where.line or 0
