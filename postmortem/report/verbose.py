"""The incident -> how the verdict came about:
what was seen, what explains what and why, what each guard removed.

Seen
  f1  cause    kernel-oom-killed-process    rank 3 on node-b      node-b/dmesg.txt:81
Explained
  f1 explains f2: pid 29502 is rank 3, and the kernel killed it 0.3 s before …
Steps
  guard stale-kernel-lines: removed 2 findings from before the job
"""

from __future__ import annotations

from postmortem.report import text, view


def render_verbose(incident: view.Incident) -> str:
    """Return plain text for a terminal; control characters of log text are written out."""
    document = incident.document
    findings = view.rows(document.get("findings")) or view.rows(document.get("chain"))
    blocks = [
        ("Seen", _seen(document, "findings" if view.rows(document.get("findings")) else "chain")),
        ("Explained", _edges(findings)),
        ("Steps", [_traced(item) for item in view.rows(document.get("trace"))]),
        ("Rejected", [_rejected(item) for item in view.rows(document.get("alternatives"))]),
        (
            "Ranks",
            [
                f"{g.ranks:<12} {g.state:<8} {text.sentence(g.exit, 20):<10} {g.why}"
                for g in view.rank_groups(document)
            ],
        ),
        ("Clocks", [_clock(item) for item in view.rows(document.get("clocks"))]),
    ]
    shown = [
        (title, [text.line(line, 600).rstrip() for line in lines] or ["nothing"]) for title, lines in blocks
    ]
    return "\n".join("\n".join([title, *(f"  {line}" for line in lines), ""]) for title, lines in shown)


def _seen(document: view.Document, key: str) -> list[str]:
    lines = []
    for step in view.steps(document, key):
        place = step.proofs[0].address if step.proofs else "no line"
        moment = text.day_and_time(step.time)[1]
        fields = [
            f"{step.id:<5}",
            f"{step.role:<9}",
            f"{step.pattern:<36}",
            f"{step.who:<24}",
            f"{moment:<13}",
            place,
        ]
        lines.append(text.line(" ".join(fields), 400))
    return lines


def _edges(findings: list[dict[str, object]]) -> list[str]:
    lines = []
    for item in findings:
        because = text.sentence(item.get("because") or "no reason is recorded", 400)
        lines += [
            text.sentence(f"{item.get('id')} explains {other}: {because}", 500)
            for other in view.words(item.get("explains"))
        ]
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
