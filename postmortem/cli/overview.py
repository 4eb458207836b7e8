"""Text of `postmortem --help`, which the man page and the reference quote.

Imports nothing, so that the help is fast on a slow file system.
"""

from __future__ import annotations

DESCRIPTION = """\
Reads what a dead or hung distributed PyTorch job left behind (rank logs, torchrun, NCCL, kernel, scheduler)
and names the rank and the host that failed first, and why, with the lines that prove it."""

EXAMPLES = {
    "postmortem analyze logs/": "print the verdict and write postmortem-report.html",
    "postmortem analyze logs/ dmesg.txt --format json --output -": "",
    "postmortem run -- torchrun train.py": "run a job, and analyze it if it fails",
    "postmortem explain kernel-oom-killed-process": "explain a pattern",
}

COMMANDS = {
    "analyze": "read logs, name what failed first and why, and write a report",
    "run": "run a job unchanged, keep evidence of a failure, and analyze it",
    "attach": "attach a report to a ticket: the page, and a comment with the verdict",
    "watch": "follow the logs of a running job and report a hang while it lasts",
    "collect": "save short-lived evidence of a host (stacks, counters, kernel log, GPUs) in one archive",
    "diff": "compare two runs: versions, settings, world, steps, first lines, verdict",
    "mcp": "answer an agent's questions about failed jobs with the Model Context Protocol on stdin and stdout",
    "explain": "explain a pattern or a usual cause: its meaning, how it looks, and how to fix the cause",
    "patterns": "list, show, test, lint or extend the pattern library",
    "history": "store verdicts and find earlier ones: how often, on which hosts, and which fix helped",
    "replay": "reproduce a failure with a few real processes and check that the verdict is the same",
    "schema": "print the JSON Schema of the incident document, its brief, an event of ndjson or a diff",
    "completion": "print the script that completes commands, options and names in a shell",
}

ENVIRONMENT = {
    "POSTMORTEM_DEBUG=1": "print tracebacks of internal errors",
    "POSTMORTEM_NOTIFY=URL": "default of --notify of analyze, which keeps it out of the process list",
    "POSTMORTEM_TICKET_TOKEN=TOKEN": "credentials of --ticket and attach: a token, or USER:PASSWORD",
    "POSTMORTEM_HISTORY=FILE|URL": "default of --history",
    "POSTMORTEM_PATTERNS=DIR:DIR": "default of --patterns",
}

EXIT_CODES = {
    "0": "the report was written, whatever the verdict",
    "1": "an internal error; patterns lint and patterns test: findings",
    "2": "usage: an unknown option, a missing path, a pattern file that does not load",
    "3": "nothing readable",
    "4": "analyze --strict: undetermined",
    "5, 6, 7": "replay: another failure, no failure, could not run here",
    "8": "collect: incomplete archive; the disk is full, or a host did not answer",
    "9": "history: the store is down, locked, too new or missing (a warning in analyze --history)",
    "10, 11, 12": "analyze --exit-code: incident, undetermined, recovered; watch: 10, a hang",
    "13": "diff --exit-code: the runs differ in something that matters",
    "14": "analyze --ticket, attach: the ticket was not written; the report was",
    "130": "interrupted",
}


def text() -> str:
    """Return the overview for a terminal."""
    examples = [f"  {line:45}  {meaning}".rstrip() for line, meaning in EXAMPLES.items()]
    tables = {"commands": (COMMANDS, 12), "environment": (ENVIRONMENT, 31), "exit codes": (EXIT_CODES, 12)}
    lines = ["usage: postmortem COMMAND ...", "", DESCRIPTION, "", *examples]
    for title, (rows, width) in tables.items():
        lines += ["", f"{title}:", *(f"  {name:{width}}{meaning}" for name, meaning in rows.items())]
    return "\n".join([*lines, "", "`postmortem COMMAND --help` lists the options of a command.", ""])
