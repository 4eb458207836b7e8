"""The command line in one screen: what `postmortem --help` prints, and the man page and the reference quote.

Plain data that imports nothing: `postmortem --help` is typed at 3 a.m. on a login node with a slow file
system. Tests keep it in step with the commands of `cli.py` and with the exit codes in the code.
"""

from __future__ import annotations

DESCRIPTION = """\
Reads what a dead or hung distributed PyTorch job left behind (rank logs, torchrun, NCCL, kernel, scheduler),
and names the rank and the host that failed first, and why, with the lines that prove it."""

EXAMPLES = {
    "postmortem analyze logs/": "a verdict here, and postmortem-report.html",
    "postmortem analyze logs/ dmesg.txt --format json --output -": "",
    "postmortem run -- torchrun train.py": "the job, and a verdict if it fails",
    "postmortem explain kernel-oom-killed-process": "what a pattern means, and what to do",
}

COMMANDS = {
    "analyze": "read logs, name what failed first and why, and write a report",
    "run": "run a job as it would run alone, keep what tells why it failed, and analyze it if it does",
    "watch": "follow the logs of a running job, and name a hang while it hangs",
    "collect": "save what a host forgets first (stacks, counters, kernel log, GPUs) into one archive",
    "diff": "say what differs between two runs: versions, settings, world, steps, first lines, verdict",
    "mcp": "answer an agent's questions about failed jobs by the Model Context Protocol, on stdin and stdout",
    "explain": "explain a pattern: what it means, how it looks, and what to do",
    "patterns": "list, show, test, lint or extend the pattern library",
    "history": "file verdicts, and ask what came before: how often, on which hosts, and what helped",
    "replay": "reproduce a failure in miniature with real processes, and check that the verdict is the same",
    "schema": "print the JSON Schema of the incident document, its brief, an event of ndjson or a diff",
    "completion": "print what makes a shell complete commands, options and names at TAB",
}

OPTIONS = {
    "--help": "print this overview; behind a command, its arguments and options",
    "--version": "print the version",
}

NOTIFY = "POSTMORTEM_NOTIFY"
ENVIRONMENT = {
    "POSTMORTEM_DEBUG=1": "shows tracebacks",
    f"{NOTIFY}=URL": "is --notify of analyze, out of the process list",
    "POSTMORTEM_HISTORY=FILE|URL": "is where analyze files each verdict",
}

EXIT_CODES = {
    "0": "the report was written, whatever it says",
    "1": "an internal error; patterns lint and patterns test: something to fix",
    "2": "usage: an unknown flag, a missing path, a pattern file that does not load",
    "3": "nothing readable",
    "4": "analyze --strict: undetermined",
    "5, 6, 7": "replay: another failure, no failure, could not run here",
    "8": "collect: the archive lacks what was there; the disk is full, or a host did not answer",
    "9": "history: the store is down, locked, too new or not there (analyze --history only says so)",
    "10, 11, 12": "analyze --exit-code: incident, undetermined, recovered; watch: 10, a hang",
    "13": "diff --exit-code: they differ in something that matters",
    "130": "interrupted",
}


def text() -> str:
    """The overview as a terminal shows it."""
    examples = [f"  {line:45}  {means}".rstrip() for line, means in EXAMPLES.items()]
    commands = [f"  {name:12}{does}" for name, does in COMMANDS.items()]
    told = [f"{name} {means}." for name, means in ENVIRONMENT.items()]
    codes = [f"  {code:12}{means}" for code, means in EXIT_CODES.items()]
    return "\n".join(
        (
            *("usage: postmortem COMMAND ...", "", DESCRIPTION, ""),
            *(*examples, "", "commands:", *commands, ""),
            *("`postmortem COMMAND --help` tells more. " + " ".join(told), ""),
            *("exit codes:", *codes, ""),
        )
    )
