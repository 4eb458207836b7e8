"""`postmortem history`: the words around the store."""

from __future__ import annotations

import getpass
import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from postmortem.errors import PathMissing, PostmortemError, UsageError
from postmortem.fleet.history import lemons, runs
from postmortem.fleet.history.filing import seen, warning
from postmortem.fleet.history.place import place
from postmortem.fleet.history.rows import Row, kept, row, stamp
from postmortem.fleet.history.store import opened
from postmortem.privacy.anonymize import Anonymizer
from postmortem.replay import documents
from postmortem.report import summary, text
from postmortem.report.json import dump, harmless
from postmortem.system import output
from postmortem.system.arguments import HISTORY

SHORT = 12  # characters of an ID that are shown
SUFFIXES = (".html", ".htm", ".json")
UNITS = {"h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
NOTE = 2000


def _where(where: str | None) -> str:
    if where:
        return where
    raise UsageError("no history is named", f"--history FILE or URL, or set {HISTORY}")


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────


def add(paths: Sequence[str], where: str | None, anonymise: bool) -> None:
    """File documents, and journals of runs that ended well; what is neither in a folder is passed over, what
    is named must be one."""
    where = _where(where)
    at = place(where)
    if at.network:
        output.say(f"postmortem: {warning(at)}")
    new = old = good = 0
    with opened(where, make=True) as store:
        for path in _documents(paths):
            try:
                ran = _ran(path, where, anonymise) if path.name == runs.JOURNAL else None
                found = ran or _row(documents.read(path), path, where, anonymise)
            except PostmortemError:
                if str(path) in paths:
                    raise
                continue
            if not (store.extend(ran) if ran else store.file(found)):
                old += 1
            elif ran:
                good += 1
            else:
                new += 1
    if not new and not old and not good:
        raise UsageError(f"{', '.join(paths)}: no report of analyze", "give its HTML or JSON, or a folder of them")
    told = [f"{text.plural(new, 'incident')} added"] if new or not good else []
    told += [f"{text.plural(good, 'run')} that ended well added"] if good else []
    output.say(", ".join([*told, *([f"{old} known already"] if old else [])]))


def _ran(path: Path, where: str, anonymise: bool) -> Row:
    found = runs.row(path, _keyed(where) if anonymise else None)
    if found is None:
        raise UsageError(f"{path}: a run that did not end well", "give the report of its analysis")
    return found


def _keyed(where: str) -> Anonymizer:
    from postmortem.fleet.history.pseudonyms import Keyed, key

    return Keyed(key(place(where)))


def _documents(paths: Iterable[str]) -> Iterator[Path]:
    for name in paths:
        path = Path(name)
        if path.is_dir():
            yield from sorted(p for p in path.rglob("*") if _may_be_filed(p) and p.is_file())
        elif path.exists():
            yield path
        else:
            raise PathMissing(f"{name} does not exist", "name a report of analyze, or a folder of them")


def _may_be_filed(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES or path.name == runs.JOURNAL


def _row(document: dict[str, Any], path: Path, where: str, anonymise: bool) -> Row:
    report = str(path.absolute()) if path.suffix.lower() != ".json" else ""
    if not anonymise:
        return row(document, report)
    from postmortem.fleet.history.pseudonyms import hidden

    names = _keyed(where)
    return row(hidden(document, names), names.path(report))


def note(where: str | None, incident: str, said: str) -> None:
    """Attach a note."""
    told = kept(" ".join(said.split()), NOTE)
    if not told:
        raise UsageError("the note is empty", 'postmortem history note ID "what helped"')
    with opened(_where(where)) as store:
        uid = store.find(incident)
        store.note(uid, told, _author())
    output.say(f"noted on {uid[:SHORT]}")


def _author() -> str | None:
    try:
        return kept(getpass.getuser())
    except (OSError, KeyError, ImportError):
        return None


def forget(where: str | None, ids: Sequence[str], keep: str | None) -> None:
    """Delete incidents by ID, and those that are too old."""
    if not ids and keep is None:
        raise UsageError("nothing to forget", "name IDs, or an age: --keep 180d")
    before = stamp(time.time() - age(keep)) if keep is not None else None
    with opened(_where(where)) as store:
        count = store.forget([store.find(name) for name in ids], before)
    output.say(f"{text.plural(count, 'incident')} forgotten")


def age(words: str) -> float:
    """Seconds of `180d`, `52w`, `12h`, `2y`."""
    match = re.fullmatch(r"(\d{1,5})([hdwy])", words.strip().lower())
    if match is None:
        raise UsageError(f"--keep {words} is no age", "write it like this: --keep 180d")
    return int(match[1]) * UNITS[match[2]]


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────


def listing(where: str | None, asked: dict[str, Any], as_json: bool) -> str:
    """A line for each incident."""
    with opened(_where(where)) as store:
        rows = store.rows(**asked)
    if as_json:
        return _json(rows)
    lines = [_line(each) for each in rows]
    return "\n".join(lines) if lines else "no incidents"


def _line(each: dict[str, Any]) -> str:
    what = each["category"] or each["outcome"]
    return text.line(
        f"{each['uid'][:SHORT]}  {each['when'][:16].replace('T', ' ')}  {what:<20}  {each['headline']}", 300
    )


def show(where: str | None, incident: str, as_json: bool) -> str:
    """All that is kept of one."""
    with opened(_where(where)) as store:
        uid = store.find(incident)
        (found,) = store.rows(uid=uid)
        involved = [dict(each) for each in store.involved(uid=uid)]
        notes = [dict(each) for each in store.notes(uid=uid)]
        same = seen(store, _again(found))
    if as_json:
        found["involved"] = [{n: each[n] for n in ("kind", "name", "fault")} for each in involved]
        found["notes"] = [{n: each[n] for n in ("noted", "author", "text")} for each in notes]
        return _json({**found, "history": same})
    return "\n".join(_shown(found, involved, notes, summary.history({"history": same})))


def _again(found: dict[str, Any]) -> Row:
    """A row of the store as it was filed."""
    return Row(**{name: found[name] for name in Row.__slots__ if name in found})


def _shown(
    found: dict[str, Any], involved: list[dict[str, Any]], notes: list[dict[str, Any]], same: str
) -> Iterator[str]:
    yield text.sentence(found["headline"], 1000)
    fault = [each["name"] for each in involved if each["fault"]]
    facts = {
        "id": found["uid"][:SHORT],
        "when": found["when"],
        "outcome": " · ".join(
            filter(None, (found["outcome"], found["category"], found["pattern"], found["confidence"]))
        ),
        "at fault": ", ".join(fault[:8]),
        "job": found["job"] or "",
        "size": text.plural(found["world_size"], "rank") if found["world_size"] else "",
        "hosts": str(sum(each["kind"] == "host" for each in involved) or ""),
        "code": found["code"] or "",
        "fingerprint": found["fingerprint"] or "",
        "seen": same,
        "report": found["report"] or "",
        "logs": found["logs"] or "",
    }
    for name, value in facts.items():
        if value:
            yield f"  {name:<12} {text.line(value, 1000)}"
    for each in notes:
        author, said = text.line(each["author"] or "", 80), text.line(each["text"], NOTE)
        yield f"  {'note':<12} {each['noted'][:10]} {author}: {said}"


def hosts(
    where: str | None,
    asked: dict[str, Any],
    mapping: Path | None,
    categories: str | None,
    rate: float,
    as_json: bool,
) -> str:
    """What is at fault more often than chance explains."""
    counted = lemons.HARDWARE if not categories else tuple(filter(None, re.split(r"[,\s]+", categories)))
    places = lemons.mapping(_read(mapping)) if mapping else {}
    with opened(_where(where)) as store:
        fleet = lemons.fleet(store.rows(**asked), store.involved(**asked), places, counted)
    judged = lemons.judge(fleet, rate)
    if as_json:
        return _json([each.plain() for each in judged])
    return "\n".join(lemons.table(judged, rate))


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig", "replace")
    except OSError as error:
        raise UsageError(f"--map {path}: {error.strerror}", "name a CSV file with a column host") from None


def export(where: str | None, asked: dict[str, Any], out: str, anonymise: bool) -> None:
    """Write the table."""
    from postmortem.fleet.history.export import table, written
    from postmortem.privacy.anonymize import Anonymizer

    form = "ndjson" if out == "-" else Path(out).suffix.lstrip(".").lower()
    if out != "-":
        output.check_target(Path(out))
    with opened(_where(where)) as store:
        found = table(
            store.rows(**asked),
            store.involved(**asked),
            store.notes(**asked),
            Anonymizer() if anonymise else None,
        )
    made = written(found, form)
    if out == "-":
        output.data(made)
        return
    output.write_file(Path(out), made)
    output.say(f"wrote {out}: {text.plural(len(found), 'incident')}")


def report(where: str | None, asked: dict[str, Any], folder: Path) -> None:
    """Write the pages, the overview last: it leads to none that is not there."""
    from postmortem.fleet.history.pages import INDEX, pages

    with opened(_where(where)) as store:
        rows, involved = store.rows(**asked), store.involved(**asked)
    made = pages(rows, involved, time.time(), folder.absolute())
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}", "name a folder that you may write") from None
    for name in sorted(made, key=lambda name: name == INDEX):
        output.write_file(folder / name, made[name])
    output.say(f"wrote {folder / INDEX}: {text.plural(len(rows), 'filed job')}")


def _json(value: Any) -> str:
    return harmless(dump(json.loads(json.dumps(value, default=str)), indent=1, order=False))
