"""The incident -> how the verdict came about:
what was seen, what explains what and why, what each guard removed.

Seen
  f1  cause    kernel-oom-killed-process    rank 3 on node-b      node-b/dmesg.txt:81
Explained
  kernel-oom-killed-process explains nccl-remote-error of rank 0: pid 29502 is rank 3, and the kernel …
Steps
  guard stale-kernel-lines: removed 2 findings from before the job
"""

from __future__ import annotations

from postmortem.report import ranks, text, view


def render_verbose(incident: view.Incident) -> str:
    """Return plain text for a terminal; control characters of log text are written out."""
    document = incident.document
    blocks = [
        ("Seen", _seen(document, "findings" if view.rows(document.get("findings")) else "chain")),
        ("Explained", _edges(document)),
        ("Steps", [_traced(item) for item in view.rows(document.get("trace"))]),
        ("Rejected", [_rejected(item) for item in view.rows(document.get("alternatives"))]),
        (
            "Ranks",
            [f"{g.few:<12} {g.state:<8} {text.sentence(g.exit, 20):<10} {g.why}" for g in ranks.rank_groups(document)],
        ),
        ("Clocks", [_clock(item) for item in view.rows(document.get("clocks"))]),
    ]
    shown = [(title, [text.line(line, 600).rstrip() for line in lines] or ["nothing"]) for title, lines in blocks]
    return "\n".join("\n".join([title, *(f"  {line}" for line in lines), ""]) for title, lines in shown)


def _seen(document: view.Document, key: str) -> list[str]:
    lines = []
    for step in view.steps(document, key):
        place = step.proofs[0].address if step.proofs else "no line"
        fields = [
            f"{step.id:<5}",
            f"{step.role:<9}",
            f"{step.pattern:<36}",
            f"{step.who:<24}",
            f"{step.moment.removesuffix(' UTC'):<13}",
            place,
        ]
        lines.append(text.line(" ".join(fields), 400))
    return lines


def _edges(document: view.Document) -> list[str]:
    steps = view.steps(document)
    lines = []
    for step in steps:
        because = text.sentence(step.because or "no reason is recorded", 400)
        for number in step.explains:
            other = steps[int(number) - 1]
            who = f" of {other.who}" if other.who else ""
            lines.append(text.sentence(f"{step.pattern} explains {other.pattern}{who}: {because}", 500))
    return lines


def _traced(item: dict[str, object]) -> str:
    return text.sentence(f"{view.known(item.get('step')) or 'step'}: {view.known(item.get('text'))}")


def _rejected(item: dict[str, object]) -> str:
    name = item.get("pattern") or item.get("category") or "another reading"
    return f"{text.sentence(name, 80)}: {text.sentence(item.get('why_not') or 'no reason is recorded', 400)}"


def _clock(item: dict[str, object]) -> str:
    shown, sigma = view.offset(item.get("offset_s")), text.seconds(item.get("uncertainty_s"))
    return text.sentence(
        f"{view.known(item.get('host')) or 'unknown host'} "
        f"({view.known(item.get('kind'))}): {view.known(item.get('state'))}, {shown}"
        f"{f' ± {sigma}' if sigma else ''}. {view.known(item.get('reason'))}", 400,
    )  # fmt: skip
