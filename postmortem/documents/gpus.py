"""Reports on GPUs and InfiniBand ports: nvidia-smi, dcgmi diag, rocm-smi, ibstat, perfquery.

GPU 00000000:5D:00.0                                   nvidia-smi -q
    ECC Errors
        Volatile
            DRAM Uncorrectable        : 2       counted since the driver was loaded; Aggregate: in the GPU's life
    Remapped Rows
        Pending                       : Yes

A row of `gpus.yaml` has the path and the value that accuse, and the words of the fact. Errors that were corrected are
no fact. The report has the state at the time when it was taken, so its facts have no time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from postmortem.documents import outline
from postmortem.formats.excerpt import fact
from postmortem.model import Event, Source
from postmortem.model.details import Details
from postmortem.system import forms

_RULES = forms.rows("documents/gpus")
_REGEXES = forms.regexes("documents/gpus")
_VALUES = forms.regexes("documents/gpu_values")
MOST_FACTS = 1000  # facts of a report
_SEVERE = ("2", "6")  # dcgmErrorSeverity_t: isolate, reset; 5 is a matter of configuration, 1 and 4 of watching


def parse(source: Source, content: bytes) -> Iterator[Event]:
    """The faults in a report of any of these tools."""
    lines, broken = outline.lines_of(source, content)
    seen: set[tuple[str, str]] = set()
    leaves: Iterable[outline.Leaf]
    if content[:4096].lstrip()[:1] in (b"{", b"["):
        yield from islice(_diag(source, content), MOST_FACTS)
        leaves = _objects(outline.read(source, content)[0])
    elif "," in lines[0]:
        leaves = _table(lines)
    else:
        leaves = outline.indented([_REGEXES["xml"].sub(_row, line) for line in lines])
    for leaf in leaves:
        if not any(value.match(leaf.value) for value in _VALUES.values()):
            continue
        device = next((m for key in leaf.path if (m := _REGEXES["device"].match(str(key)))), None)
        name = device[device.lastgroup or 0] if device else ""
        for signature, row in _RULES.items():
            if "value" not in row or not _REGEXES[signature].search(leaf.dotted):
                continue
            if _VALUES[row["value"]].match(leaf.value) and (name, signature) not in seen:
                seen.add((name, signature))
                yield _fact(source, lines, leaf.line, f"{signature}: {leaf.value}", name)
    yield from islice(_tables(source, lines), MOST_FACTS)
    yield from broken


def _objects(leaves: Sequence[outline.Leaf]) -> Iterator[outline.Leaf]:
    """The values of a list with an object for each GPU (amd-smi)."""
    for path, item in outline.items(leaves, 1):
        gpu = next((leaf.value for leaf in item if leaf.path in (("gpu",), ("gpu_id",))), None)
        if gpu is not None and isinstance(path[0], int):
            yield from (leaf._replace(path=(f"GPU: {gpu}", *leaf.path)) for leaf in item)


def _table(lines: list[str]) -> Iterator[outline.Leaf]:
    """The values of `nvidia-smi --query-gpu=... --format=csv`: the header has the names of the properties."""
    names = [name.strip().partition(" [")[0] for name in lines[0].split(",")]
    for number, line in enumerate(lines[1:], 1):
        row = dict(zip(names, (cell.strip() for cell in line.split(",")), strict=False))
        device = f"GPU {row.get('pci.bus_id') or row.get('gpu_bus_id') or row.get('index', '')}".rstrip()
        yield from (outline.Leaf((device, name), value, number) for name, value in row.items())


def _row(m: re.Match[str]) -> str:
    """`<dram_uncorrectable>2</dram_uncorrectable>` of `nvidia-smi -q -x` as a row of `nvidia-smi -q`."""
    name = f"GPU {m['bus']}" if m["bus"] else m["tag"].replace("_", " ")
    return f"{name} : {m['value']}" if m["value"] else name


def _fact(source: Source, lines: list[str], at: int, signature: str, device: str) -> Event:
    fields: Details = {}
    if _REGEXES["bus"].search(device):
        fields["pci"] = device
    elif device:
        signature += f" of {'GPU ' if device.isdecimal() else ''}{device}"
    return fact(source, lines, at, signature, fields=fields, gpu=device or None)


def _tables(source: Source, lines: list[str]) -> Iterator[Event]:
    """Rows of `nvidia-smi`, `dcgmi diag` and `rocm-smi --showrasinfo`."""
    test, device, of_health = "", "", False
    for number, line in enumerate(lines):
        if m := _REGEXES["device"].match(line):
            device = m[m.lastgroup or 0]
        elif (m := _REGEXES["ras-row"].match(line)) and m["errors"].strip("0"):
            yield _fact(source, lines, number, f"gpu uncorrectable errors: {m['errors']} in {m['block']}", device)
        if not line.startswith("|"):
            continue
        if (m := _REGEXES["smi-row"].match(line)) and m["errors"] not in ("0", "N/A", "Off"):
            signature = f"gpu uncorrectable errors since the driver was loaded: {m['errors']}"
            yield _fact(source, lines, number, signature, m["bus"])
        elif m := _REGEXES["diag-row"].match(line):
            if health := _REGEXES["health-gpu"].match(m["test"]):
                test, device, of_health = "", health[1], True
                continue
            test = m["test"].strip(" ->") or test
            bad = _REGEXES["diag-failed"].search(m["result"])
            entity = _REGEXES["diag-gpu"].search(m["result"]) or (bad if bad and bad[1] else None)
            device = entity[1] if entity else "" if m["test"].strip() and not of_health else device
            below = lines[number + 1] if m["test"].strip() and number + 1 < len(lines) else ""
            if bad and not _REGEXES["diag-gpu"].search(below) and _fatal(lines, number) and "Overall" not in test:
                yield _fact(source, lines, number, f"gpu diagnostic failed: {test or m['result'].strip()}", device)


def _fatal(lines: Sequence[str], at: int) -> bool:
    """Whether a failed test is not only about a setting: the text below says what to configure."""
    below = " ".join(line.strip("| ") for line in lines[at + 1 : at + 12] if line.startswith("|"))
    return _REGEXES["setting"].search(below.partition("Pass")[0]) is None


def _diag(source: Source, content: bytes) -> Iterator[Event]:
    """`dcgmi diag --json`, of DCGM 3 and 4: results with the severity of each warning."""
    leaves, broken = outline.read(source, content)
    yield from broken
    lines, _ = outline.lines_of(source, content)
    buses = {}
    for _, entity in outline.items(leaves, 4):
        value = {leaf.path[-1]: leaf.value for leaf in entity if leaf.path}
        if "entity_id" in value and "bus_id" in value:
            buses[value["entity_id"]] = value["bus_id"]
    names = {leaf.path[:5]: leaf.value for leaf in leaves if leaf.path[5:] == ("name",)}
    for path, result in outline.items(leaves, 7):
        name = names.get(path[:5], "")
        value = {leaf.dotted: leaf.value for leaf in result}
        if value.get("status", "").lower() != "fail":
            continue
        device = value.get("entity_id") or value.get("gpu_id") or value.get("gpu_ids", "")
        for leaf in result:
            if leaf.path[-1:] == ("error_severity",) and leaf.value in _SEVERE:
                yield _fact(source, lines, leaf.line, f"gpu diagnostic failed: {name}", buses.get(device, device))
                break


__all__ = ["parse"]
