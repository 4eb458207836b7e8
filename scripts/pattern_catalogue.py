"""patterns/**/*.yaml, sample_logs/ and the replay scenarios -> docs/catalogue/*.md,
and the links of docs/questions/*.md.

    python scripts/pattern_catalogue.py            writes them
    python scripts/pattern_catalogue.py --check    list those that are out of date; exit 1 if any is

The catalogue is written as a whole. The pages in docs/questions/ are written by hand; only two things in them
are generated: the line after `<!-- samples: … -->`, and the text after `<!-- links -->` (where each
`[pattern-id]` leads).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import regex

from postmortem.blocks import read_text
from postmortem.library import Library, load
from postmortem.model import Example, Pattern, Variant
from postmortem.model.vocabulary import CATEGORIES, ROLES
from postmortem.replay.catalogue import SCENARIOS
from postmortem.workshop import causes as usual_causes
from postmortem.workshop.catalogue import ENTITY_MEANS, ROLE_MEANS
from postmortem.workshop.trial import BLOCK

ROOT = Path(__file__).resolve().parent.parent
CATALOGUE = ROOT / "docs" / "catalogue"
QUESTIONS = ROOT / "docs" / "questions"
INCIDENTS = (ROOT / "sample_logs", ROOT / "tests" / "incidents" / "synthetic")
MAX_SAMPLES = 6
FAMILIES = {
    "checkpoint": "checkpoints that cannot be written, read, or fitted to the model",
    "collective": "collectives that time out or do not match, and their flight-recorder dumps",
    "crash": "processes that die of a signal or an uncaught C++ exception",
    "dataloader": "DataLoader workers and the memory they share",
    "ddp": "DDP, FSDP and ZeRO used in a way they do not allow",
    "environment": "drivers, libraries and builds that do not fit together",
    "frameworks": "DeepSpeed, Megatron-LM, Lightning, vLLM, sglang, torch.compile, Triton",
    "gloo": "the gloo backend",
    "gpu-fault": "CUDA and HIP errors of a running kernel",
    "gpu-hardware": "driver messages on GPUs and their links: Xid, SXid, fabric manager, amdgpu",
    "gpu-memory": "GPU memory that was not enough",
    "host-memory": "host memory that was not enough: the OOM killer, cgroups, allocators",
    "kernel": "other words of the Linux kernel",
    "kubernetes": "kubelet, pods and the training operator",
    "launcher": "torchrun and other launchers",
    "limits": "limits on files, processes, threads and locked memory",
    "nccl": "NCCL's own errors and notes",
    "nccl-config": "NCCL with GPUs, transports, plugins and versions that do not fit",
    "network": "adapters, InfiniBand, sockets",
    "numerics": "NaN, overflow, loss scale",
    "processes": "fork, spawn and pools of processes",
    "python": "Python exceptions",
    "ray": "Ray",
    "reasoning": "findings that no single line shows, from a comparison of the ranks",
    "rendezvous": "how a job comes together: store, rendezvous, environment variables",
    "scheduler": "Slurm, PBS, LSF, cloud instances",
    "signals": "signals from outside and limits that send one",
    "storage": "disks and network file systems",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One incident in the checkout. `shows` are the patterns that its decisive lines are read as."""

    folder: Path
    scenario: str
    shows: frozenset[str]

    @property
    def recorded(self) -> bool:
        return self.folder.parent.name == "sample_logs"


def samples(library: Library) -> list[Sample]:
    """All incidents of the checkout that come with a truth, recorded ones first."""
    out = []
    for room in INCIDENTS:
        for truth in sorted(room.glob("*/truth.json")):
            readme = truth.with_name("README.md")
            made = re.search(r"record_sample\.py (\S+)", readme.read_text()) if readme.is_file() else None
            lines = [str(e.get("text", "")) for e in json.loads(truth.read_text()).get("evidence", [])]
            shows = {
                e.pattern
                for line in lines
                for text in (line, BLOCK + line)
                for e in read_text(text, "", library)
                if e.pattern
            }
            out.append(Sample(truth.parent, made[1] if made else "", frozenset(shows)))
    return out


def samples_of(p: Pattern, known: Iterable[Sample]) -> list[Sample]:
    """The incidents in which this pattern is decisive.
    A derived one has no line: its examples and its scenarios name them."""
    named = {e.incident for e in p.matches if e.incident}
    proving = {s.id for s in SCENARIOS if s.pattern == p.id} if p.derived else set()
    return [s for s in known if s.folder.name in named or p.id in s.shows or s.scenario in proving]


# ── Markdown ────────────────────────────────────────────────────────────────────────────────────────────────


def prose(text: str) -> str:
    """Escape the markup of Markdown, outside of `code`."""
    pieces = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(
        p if p.startswith("`") else re.sub(r"[*<]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", p) for p in pieces
    )


def cell(text: str) -> str:
    return prose(text).replace("|", "\\|")


def block(text: str) -> list[str]:
    """Return a fenced block, with visible control characters."""
    shown = "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text.rstrip())
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", shown)), default=0))
    return [f"{fence}text", *(line.rstrip() for line in shown.splitlines()), fence]


def link(p: Pattern, folder: str = "") -> str:
    return f"[{p.id}]({folder}{p.family}.md#{p.id})"


def sample_link(s: Sample) -> str:
    path = s.folder.relative_to(ROOT).as_posix()
    return f"[{s.folder.name}](../../{path}/)" + ("" if s.recorded else " (synthetic)")


# ── one pattern ─────────────────────────────────────────────────────────────────────────────────────────────


def _version(v: Variant) -> str:
    return ", ".join(f"{name} {wanted}" for name, wanted in v.since.items())


def wordings(p: Pattern) -> Iterator[tuple[str, Variant, list[Example]]]:
    """Each wording with where it holds and the examples that show it;
    an example goes to the first wording that reads it."""
    left = [e for e in p.matches if e.text]
    for v in p.variants:
        reads = regex.compile(v.regex.encode())
        mine = [e for e in left if any(reads.search(line.encode()) for line in e.text.splitlines())]
        left = [e for e in left if e not in mine]
        yield _version(v), v, mine


def _looks(p: Pattern) -> Iterator[str]:
    if p.derived:
        yield from (
            "**How it looks.** No single line shows it; it follows from the lines of several ranks.",
            "",
        )
        return
    yield from ("**How it looks**", "")
    versions = {label for label, _, _ in wordings(p)}
    for label, variant, examples in wordings(p):
        if versions != {""}:
            yield from (f"*{label or 'no version stated'}*", "")
        for e in examples:
            yield from block(e.text)
            yield from ([f"from: {prose(e.origin)}", ""] if e.origin else [""])
        if not examples:
            code = variant.regex.replace("\n", " ")
            ticks = "`" * (1 + max((len(run) for run in re.findall(r"`+", code)), default=0))
            yield from (f"No example of this wording; searched for as {ticks} {code} {ticks}", "")


def _paragraph(title: str, *texts: str) -> Iterator[str]:
    if any(texts):
        yield from (f"**{title}.** " + " ".join(prose(t) for t in texts if t), "")


def _listed(title: str, items: Iterable[str]) -> Iterator[str]:
    found = list(items)
    if found:
        yield from (f"**{title}**", "", *(f"- {item}" for item in found), "")


def _seen_again(p: Pattern, known: Iterable[Sample]) -> Iterator[str]:
    replays = dict.fromkeys([p.replay] * bool(p.replay) + [s.id for s in SCENARIOS if s.pattern == p.id])
    if replays:
        yield from ("**Replay.** " + ", ".join(f"`postmortem replay {name}`" for name in replays), "")
    shown = samples_of(p, known)
    if shown:
        more = f", and {len(shown) - MAX_SAMPLES} more" if len(shown) > MAX_SAMPLES else ""
        yield from ("**Samples.** " + ", ".join(sample_link(s) for s in shown[:MAX_SAMPLES]) + more, "")


def section(p: Pattern, library: Library, known: Iterable[Sample]) -> Iterator[str]:
    """Yield the section of one pattern."""
    facts = [p.role, p.category or "", p.severity, "" if p.status == "stable" else p.status]
    where = f" · read in {', '.join(p.sources)}" if p.sources else ""
    yield from (f"## {p.id}", "", f"{prose(p.title)} · {' · '.join(f for f in facts if f)}{where}", "")
    yield from _paragraph("What it means", p.what, p.why)
    yield from _looks(p)
    if p.role != "context":
        yield from _paragraph("Usual culprit", f"{ENTITY_MEANS[p.entity]}.")
    yield from _listed("What to do", (prose(a.text) + (f" ({a.kind})" if a.kind != "none" else "") for a in p.actions))
    yield from _paragraph("Not to be confused with", p.not_to_be_confused_with)
    others = [e for e in p.no_matches if e.text]
    if others:
        yield from ("**Lines that do not match**", "")
        for e in others:
            yield from (*block(e.text), f"because: {prose(e.because)}", "")
    yield from _listed("Explains", (f"{link(library[x.id])} ({x.join})" for x in p.explains))
    yield from _listed(
        "Explained by", (link(o) for o in library.patterns.values() if any(x.id == p.id for x in o.explains))
    )
    yield from _seen_again(p, known)
    yield from _paragraph("References", "; ".join(p.references))


# ── pages ───────────────────────────────────────────────────────────────────────────────────────────────────


def _note(what: str) -> list[str]:
    return [f"<!-- Written by scripts/pattern_catalogue.py from {what}. Edit those. -->", ""]


def _table(patterns: Iterable[Pattern]) -> Iterator[str]:
    yield from ("| pattern | role | category | what was seen |", "|---|---|---|---|")
    for p in patterns:
        yield f"| {link(p)} | {p.role} | {p.category or ''} | {cell(p.title)} |"
    yield ""


def _ordered(patterns: Iterable[Pattern]) -> list[Pattern]:
    return sorted(patterns, key=lambda p: (ROLES.index(p.role), p.id))


def family_page(family: str, library: Library, known: list[Sample]) -> str:
    """One family: a table, then its patterns, causes first."""
    members = _ordered(p for p in library.patterns.values() if p.family == family)
    about = FAMILIES[family]
    lines = [
        *_note(f"patterns/{family}/*.yaml"),
        f"# {family}",
        "",
        f"{about[:1].upper()}{about[1:]}. [All families](README.md)",
        "",
    ]
    lines += _table(members)
    for p in members:
        lines += section(p, library, known)
    return "\n".join(lines).rstrip() + "\n"


def index_page(library: Library) -> str:
    """The families, the causes by category, and every pattern."""
    patterns = library.patterns.values()
    lines = [*_note("patterns/**/*.yaml"), "# Catalogue", ""]
    lines += [f"{len(patterns)} patterns. [How to read and write one](../../patterns/README.md).", ""]
    lines += [
        *(f"- *{role}*: {means}" for role, means in ROLE_MEANS.items()),
        "",
        "[Usual causes of a symptom](causes.md)",
        "",
        "## Families",
        "",
    ]
    lines += ["| family | patterns | causes | |", "|---|---|---|---|"]
    for family in sorted({p.family for p in patterns}):
        members = [p for p in patterns if p.family == family]
        causes = sum(p.role == "cause" for p in members)
        lines.append(f"| [{family}]({family}.md) | {len(members)} | {causes} | {FAMILIES[family]} |")
    lines += ["", "## Causes, by the category of the verdict", ""]
    for category in CATEGORIES:
        causes_of = [p for p in patterns if p.category == category and p.role == "cause"]
        lines += [f"**{category}**: {', '.join(link(p) for p in causes_of)}", ""]
    lines += ["## All patterns", "", *_table(sorted(patterns, key=lambda p: p.id))]
    return "\n".join(lines).rstrip() + "\n"


def causes_page() -> str:
    """The usual causes by symptom."""
    lines = [*_note("patterns/causes/*.yaml"), "# Usual causes", ""]
    lines += [
        "Where a verdict is a symptom, the report lists its usual causes, best first by the signs in the logs: the"
    ]
    lines += ["number is the effect of a sign. `postmortem explain ID` shows one. [All patterns](README.md)", ""]
    return "\n".join([*lines, *usual_causes.page()]).rstrip() + "\n"


def _samples_line(words: list[str], known: Iterable[Sample]) -> str:
    """The line below a cause on a question page; its marker names scenarios, patterns and incidents."""
    found = [s for s in known if {s.scenario, s.folder.name} & set(words) or s.shows & set(words)]
    replays = [f"`postmortem replay {s.id}`" for s in SCENARIOS if s.id in words]
    line = "Samples: " + ", ".join(sample_link(s) for s in found[:MAX_SAMPLES]) if found else "No sample yet"
    return line + (f". Replay: {', '.join(replays)}." if replays else ".")


def question_page(text: str, library: Library, known: list[Sample]) -> str:
    """A page written by hand, with its samples and the targets of its links brought up to date."""

    def put(match: re.Match[str]) -> str:
        return f"{match[1]}\n{_samples_line(match[2].split(), known)}\n"

    text = re.sub(r"(<!-- samples: ([\w -]+?) -->)\n(?:(?!\n).*\n)?", put, text)
    body, marker, _ = text.partition("<!-- links -->")
    if not marker:
        return text
    mentioned = sorted(set(re.findall(r"\[([a-z0-9]+(?:-[a-z0-9]+)+)\](?!\()", re.sub(r"`[^`\n]*`", "", body))))
    targets = [f"[{i}]: ../catalogue/{library[i].family}.md#{i}" for i in mentioned if i in library.patterns]
    return "\n".join([body + marker, "", *targets]) + "\n"


def pages() -> dict[Path, str]:
    """Return every generated page and its text."""
    library = load()
    known = samples(library)
    families = {p.family for p in library.patterns.values()}
    if unknown := families - FAMILIES.keys():
        sys.exit(f"describe {', '.join(sorted(unknown))} in FAMILIES of {Path(__file__).name}")
    out = {CATALOGUE / f"{family}.md": family_page(family, library, known) for family in sorted(families)}
    out[CATALOGUE / "README.md"] = index_page(library)
    out[CATALOGUE / "causes.md"] = causes_page()
    out.update({page: question_page(page.read_text(), library, known) for page in sorted(QUESTIONS.glob("*.md"))})
    return out


def main() -> int:
    wanted = pages()
    stray = sorted(set(CATALOGUE.glob("*.md")) - set(wanted))
    stale = [path for path, text in wanted.items() if not path.is_file() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in stale + stray:
            print(f"out of date: {path.relative_to(ROOT)}")
        if stale or stray:
            print(f"run {sys.executable} scripts/pattern_catalogue.py")
        return 1 if stale or stray else 0
    CATALOGUE.mkdir(parents=True, exist_ok=True)
    for path in stale:
        path.write_text(wanted[path])
    for path in stray:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
