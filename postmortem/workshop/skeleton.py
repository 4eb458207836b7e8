"""A line of a log -> the skeleton of a pattern file; `patterns lint` names the fields to fill in."""

from __future__ import annotations

import re
from pathlib import Path

from postmortem.errors import PathMissing, UsageError
from postmortem.system import resources
from postmortem.system.arguments import own_patterns
from postmortem.system.output import write_file

NAME = re.compile(r"(?P<family>[a-z0-9]+(?:-[a-z0-9]+)*)/(?P<id>[a-z0-9]+(?:-[a-z0-9]+)*)")
# prefixes of torchrun's tee and of ranks: the regex searches, so it needs none of them
PREFIX = re.compile(r"^(?:\[(?:rank|default)?\d+\]:\s*|\d+:\s+)+")
VARYING = re.compile(r"(?P<hex>0x[0-9a-fA-F]+)|(?P<number>\d+)|[\\.^$*+?{}\[\]|()]")


def write(name: str, line: str, folder: Path | None) -> Path:
    """Write the skeleton of pattern `name` (family/id), always as a new file; return its path."""
    found = NAME.fullmatch(name)
    if not found:
        raise UsageError(f"{name} is not FAMILY/ID in small letters", "for example: nccl/nccl-remote-process-exited")
    if folder is None:  # the library of a checkout; that of an installed package cannot be added to
        folder = own_patterns() if (resources.PACKAGE / "_data").is_dir() else resources.folder("patterns")
    path = folder / found["family"] / f"{found['id']}.yaml"
    if path.exists():
        raise UsageError(f"{path} exists", "choose another id, or edit that file")
    text, origin = _line(line)
    path.parent.mkdir(parents=True, exist_ok=True)
    title = found["id"].replace("-", " ").capitalize()
    quoted = {"regex": regex_of(text), "line": text, "origin": origin}
    fields = {name: "'" + value.replace("'", "''") + "'" for name, value in quoted.items()}
    write_file(path, Path(__file__).with_name("skeleton.txt").read_text().format(id=found["id"], title=title, **fields))
    return path


def _line(text: str) -> tuple[str, str]:
    name, _, number = text.rpartition(":")
    if not (name and number.isdigit() and Path(name).is_file()):
        if re.fullmatch(r"\S+:\d+", text) or Path(text).is_file():
            raise PathMissing(
                f"{text} is not a line of a file", "--from takes FILE:LINE, or the text of the line in quotes"
            )
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
