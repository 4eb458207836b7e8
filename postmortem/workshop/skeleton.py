"""A line of a log -> the skeleton of a pattern file, which `patterns lint` then asks to be filled in.

postmortem patterns new gpu/gpu-went-away --from node-a/rank3.log:118
"""

from __future__ import annotations

import re
from pathlib import Path

from postmortem.errors import PathMissing, UsageError
from postmortem.system import resources
from postmortem.system.output import write_file

NAME = re.compile(r"(?P<family>[a-z0-9]+(?:-[a-z0-9]+)*)/(?P<id>[a-z0-9]+(?:-[a-z0-9]+)*)")
# prefixes of torchrun's tee and of ranks: the regex searches, so it needs none of them
PREFIX = re.compile(r"^(?:\[(?:rank|default)?\d+\]:\s*|\d+:\s+)+")
VARYING = re.compile(r"(?P<hex>0x[0-9a-fA-F]+)|(?P<number>\d+)|[\\.^$*+?{}\[\]|()]")

TEXT = """\
id: {id}
title: {title}
status: draft
category: null            # what the job died of; only a cause or a symptom has one
role: context             # cause | symptom | confirms | context. A wrong cause is worse than a missing one
severity: error           # fatal | error | warning | info
regex: {regex}
entity: self              # self | rank | pid | gpu | host | peer | missing-ranks | job
what: ''                  # one or two sentences for the engineer on call
why: ''                   # what it means for the search for the cause
actions: []               # - {{kind: fix-code, text: …}}
references: []            # where the emitter's source prints it
examples:
  match:
    - text: {line}
      captures: {{}}
      from: {origin}
  no_match: []            # - {{text: the nearest line that is something else, because: …}}
"""


def write(name: str, line: str, folder: Path | None) -> Path:
    """Write the skeleton of pattern `name` (family/id) and return its path.
    An existing file is never touched."""
    found = NAME.fullmatch(name)
    if not found:
        raise UsageError(f"{name} is not FAMILY/ID in small letters", "for example: nccl/nccl-remote-process-exited")
    if folder is None and (resources.PACKAGE / "_data").is_dir():
        raise UsageError(
            "a new pattern does not belong into the installed library",
            "name a folder of your own: --patterns DIR",
        )
    path = (folder or resources.folder("patterns")) / found["family"] / f"{found['id']}.yaml"
    if path.exists():
        raise UsageError(f"{path} exists", "choose another id, or edit that file")
    text, origin = _line(line)
    path.parent.mkdir(parents=True, exist_ok=True)
    words = found["id"].replace("-", " ")
    fields = {
        "id": found["id"],
        "title": words[0].upper() + words[1:],
        "regex": _quote(regex_of(text)),
        "line": _quote(text),
    }
    write_file(path, TEXT.format(**fields, origin=_quote(origin)))
    return path


def _line(text: str) -> tuple[str, str]:
    """Return the line and where it is from, for FILE:LINE or the text of a line."""
    name, _, number = text.rpartition(":")
    if not (name and number.isdigit() and Path(name).is_file()):
        if re.fullmatch(r"\S+:\d+", text) and ("/" in name or name.endswith((".log", ".txt", ".err", ".out"))):
            raise PathMissing(f"there is no file {name}", "--from takes FILE:LINE, or the text of the line in quotes")
        return text, ""
    with Path(name).open("rb") as file:
        for count, raw in enumerate(file, 1):
            if count == int(number):
                line = raw.rstrip(b"\r\n")[:4096].decode("utf-8", "backslashreplace")
                return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f]", "", line), text
    raise UsageError(f"{name} has no line {number}", "--from takes FILE:LINE, counted from 1")


def regex_of(line: str) -> str:
    """Return a regex for lines like this one: prefixes gone, numbers free."""
    core = PREFIX.sub("", line).strip()[:300]
    return VARYING.sub(lambda m: "0x[0-9a-fA-F]+" if m["hex"] else r"\d+" if m["number"] else "\\" + m[0], core)


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
