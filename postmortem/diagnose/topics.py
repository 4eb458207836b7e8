"""The category of an error that no pattern knows, by its words (topics.yaml) or by the file that raised it (frames.yaml).

    RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)       environment
    PMIX ERROR: NOT-FOUND in file server/pmix_server.c at line 229                       environment
    MPID_Init(441).......:  MPIR_pmi_init(110)...: PMI_Init returned 1                   rendezvous

A pattern that states only that something failed (`topic` in its file) takes its category from its own line, or also
from the errors right above.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from dataclasses import replace

from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.formats.excerpt import CONTEXT
from postmortem.system import forms

MOST = 600  # characters of a line


def of(text: str) -> str:
    """The category of a message; empty where its words are of none."""
    return next((name for name, form in forms.regexes("diagnose/topics").items() if form.search(text, 0, MOST)), "")


def named(case: Case, root: Claim) -> Claim:
    """The claim with a category by its words, where its pattern has none of its own."""
    if not root.pattern.topic:
        return root
    found = next(filter(None, map(of, _lines(case, root))), "") or _by_frame(root)
    if found == "hang" and _is_own_class(root):
        return root
    return replace(root, pattern=replace(root.pattern, category=found)) if found else root


def _by_frame(root: Claim) -> str:
    """The category of the library function that raised: that of the innermost frame."""
    frames = root.event.fields.get("frames")
    file = str(frames[-1][0]).replace("\\", "/") if isinstance(frames, tuple) and frames else ""
    return next((name for name, form in forms.regexes("diagnose/frames").items() if form.search(file)), "")


def _is_own_class(root: Claim) -> bool:
    """Whether the program raised the exception itself, or has its class: `FeatureStoreError: fetch timed out` is no
    hang."""
    fields = root.event.fields
    kind = (fields.get("type") or "RuntimeError").rpartition(".")[2]
    if frames := fields.get("frames"):
        file, line, _ = frames[-1]
        if f"{file.rpartition('/')[2]}:{line}" == fields.get("code"):
            return True
    return "Timeout" not in kind and not hasattr(builtins, kind) and not kind.startswith("Dist")


def _lines(case: Case, root: Claim) -> Iterator[str]:
    """Its own line, the lines of its message below, and the lines around it, from the last to the first."""
    e = root.event
    text = e.fields.get("line") or e.text
    around = root.pattern.topic == "around"
    yield text
    if around or (e.fields.get("line") and text.endswith(":")):
        yield from filter(_is_message, e.context[e.before + 1 : e.before + 3])
    if around:
        yield from filter(_is_message, reversed(e.context[max(0, e.before - CONTEXT) : e.before]))
        near = [x for x in case.by_source[e.where.source] if -2 <= e.line - x.line <= CONTEXT and x.line != e.line]
        yield from (x.text for x in sorted(near, key=lambda e: e.line, reverse=True))


def _is_message(line: str) -> bool:
    """Whether a line is no frame of a traceback and no code."""
    return not line.startswith(("  File ", "    ", "\t"))
