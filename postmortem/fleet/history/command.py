"""`postmortem history`: add, list, show, annotate, export and forget incidents of a store."""

from __future__ import annotations

import getpass
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from postmortem.errors import PathMissing, PostmortemError, UsageError
from postmortem.fleet.history import backup, lemons, runs
from postmortem.fleet.history.filing import warn_of_network
from postmortem.fleet.history.place import place
from postmortem.fleet.history.rows import clean, row, stamp
from postmortem.fleet.history.store import ID, Store, opened
from postmortem.privacy.anonymize import Anonymizer
from postmortem.replay import documents
from postmortem.report import summary, text
from postmortem.report.json import dump, harmless
from postmortem.system import output
from postmortem.system.arguments import HISTORY

UNITS = {"h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
NOTE = 2000

Conditions = dict[str, Any]  # keyword arguments of Store.rows


def _named(where: str | None) -> str:
    if not where:
        raise UsageError("no history is named", f"--history FILE or URL, or set {HISTORY}")
    return where


def add(paths: Sequence[str], where: str | None, anonymise: bool) -> None:
    """File documents, and journals of runs that ended well. Other files of a folder are skipped; a named file that is
    neither is an error."""
    where = _named(where)
    at = place(where)
    warn_of_network(at)
    names: Anonymizer | None = None
    if anonymise:
        from postmortem.fleet.history.pseudonyms import Keyed, key

        names = Keyed(key(at))
    incidents = good = known = 0
    with opened(where, make=True) as store:
        for path in _documents(paths):
            try:
                new = _add(store, path, names)
            except PostmortemError:
                if str(path) in paths:
                    raise
                continue
            known += not new
            good += new and path.name == runs.JOURNAL
            incidents += new and path.name != runs.JOURNAL
    if not incidents and not good and not known:
        raise UsageError(f"{', '.join(paths)}: no report of analyze", "give its HTML or JSON, or a folder of them")
    counts = {
        f"{text.plural(incidents, 'incident')} added": incidents or not good,
        f"{text.plural(good, 'run')} that ended well added": good,
        f"{known} known already": known,
    }
    output.say(", ".join(words for words, count in counts.items() if count))


def _documents(paths: Iterable[str]) -> Iterator[Path]:
    for name in paths:
        path = Path(name)
        if path.is_dir():
            suffixes = (".html", ".htm", ".json")
            found = (p for p in path.rglob("*") if p.suffix.lower() in suffixes or p.name == runs.JOURNAL)
            yield from sorted(p for p in found if p.is_file())
        elif path.exists():
            yield path
        else:
            raise PathMissing(f"{name} does not exist", "name a report of analyze, or a folder of them")


def _add(store: Store, path: Path, names: Anonymizer | None) -> bool:
    """File a document or a journal; True if it is new. Raise PostmortemError if it is neither."""
    if path.name == runs.JOURNAL:
        if (ran := runs.row(path, names)) is None:
            raise UsageError(f"{path}: a run that did not end well", "give the report of its analysis")
        return store.extend(ran)
    document, report = documents.read(path), str(path.absolute()) if path.suffix.lower() != ".json" else ""
    if names is None:
        return store.file(row(document, report))
    from postmortem.fleet.history.pseudonyms import hidden

    return store.file(row(hidden(document, names), names.path(report)))


def note(where: str | None, incident: str, words: str) -> None:
    """Attach a note."""
    cleaned = clean(" ".join(words.split()), NOTE)
    if not cleaned:
        raise UsageError("the note is empty", 'postmortem history note ID "what helped"')
    with opened(_named(where)) as store:
        uid = store.find(incident)
        store.note(uid, cleaned, _author())
    output.say(f"noted on {uid[:ID]}")


def _author() -> str | None:
    try:
        return clean(getpass.getuser())
    except (OSError, KeyError, ImportError):
        return None


def forget(where: str | None, ids: Sequence[str], keep: str | None) -> None:
    """Delete incidents by ID, and those that are too old."""
    if not ids and keep is None:
        raise UsageError("nothing to forget", "name IDs, or an age: --keep 180d")
    before = stamp(time.time() - age(keep)) if keep is not None else None
    with opened(_named(where)) as store:
        count = store.forget([store.find(name) for name in ids], before)
    output.say(f"{text.plural(count, 'incident')} forgotten")


def check(where: str | None, repair: bool) -> str:
    """Return how many incidents a SQLite store has. Raise HistoryError if it is damaged, unless it is repaired."""
    at = place(_named(where))
    if repair:
        backup.restore(at)
        with opened(at.shown, make=True):  # creates missing tables
            count, more = backup.salvage(at.file) if at.file else (0, 0)
        return f"{at.shown}: {text.plural(count, 'incident')}, {more} of them from the damaged file, which is put aside"
    with opened(_named(where), reads=True) as store:
        count = len(store.rows())
    if at.file is not None:
        backup.guard(at, "integrity_check")
    return f"{at.shown}: {text.plural(count, 'incident')}, no damage"


def age(words: str) -> float:
    """Return the seconds of `180d`, `52w`, `12h`, `2y`."""
    number, unit = words.strip().lower()[:-1], words.strip().lower()[-1:]
    if unit not in UNITS or not (number.isascii() and number.isdigit() and len(number) <= 5):
        raise UsageError(f"--keep {words} is not a valid duration", "write it like this: --keep 180d")
    return int(number) * UNITS[unit]


def listing(where: str | None, conditions: Conditions, as_json: bool) -> str:
    """Return a line for each incident."""
    with opened(_named(where)) as store:
        rows = store.rows(**conditions)
    if as_json:
        return _json(rows)
    head = f"{'ID':<{ID}}  {'WHEN (UTC)':<16}  {'CATEGORY':<20}  VERDICT"
    return "\n".join([head, *map(_line, rows)]) if rows else "no incidents"


def _line(row: dict[str, Any]) -> str:
    category, when = row["category"] or row["outcome"], row["when"][:16].replace("T", " ")
    return text.line(f"{row['uid'][:ID]}  {when}  {category:<20}  {row['headline']}", 300)


def show(where: str | None, incident: str, as_json: bool) -> str:
    """Return the record of one incident."""
    with opened(_named(where)) as store:
        uid = store.find(incident)
        (found,) = store.rows(uid=uid)
        involved, notes = store.involved(uid=uid), store.notes(uid=uid)
        same = store.seen(uid, found["cause"])
    if as_json:
        found["involved"] = [{n: each[n] for n in ("kind", "name", "fault")} for each in involved]
        found["notes"] = [{n: each[n] for n in ("noted", "author", "text")} for each in notes]
        return _json({**found, "history": same})
    return "\n".join(_record(found, involved, notes, summary.history({"history": same})))


def _record(
    found: dict[str, Any], involved: list[dict[str, Any]], notes: list[dict[str, Any]], same: str
) -> Iterator[str]:
    yield text.sentence(found["headline"], 1000)
    facts = {
        "id": found["uid"][:ID],
        "when": found["when"],
        "outcome": " · ".join(filter(None, map(found.get, ("outcome", "category", "pattern", "confidence")))),
        "at fault": ", ".join([each["name"] for each in involved if each["fault"]][:8]),
        "job": found["job"],
        "size": text.plural(found["world_size"], "rank") if found["world_size"] else "",
        "hosts": sum(each["kind"] == "host" for each in involved),
        "code": found["code"],
        "fingerprint": found["fingerprint"],
        "seen": same,
        "report": found["report"],
        "logs": found["logs"],
    }
    for name, value in facts.items():
        if value:
            yield f"  {name:<12} {text.line(value, 1000)}"
    for each in notes:
        author, words = text.line(each["author"] or "", 80), text.line(each["text"], NOTE)
        yield f"  {'note':<12} {each['noted'][:10]} {author}: {words}"


def hosts(
    where: str | None, conditions: Conditions, mapping: Path | None, categories: str | None, rate: float, as_json: bool
) -> str:
    """Return what is at fault more often than chance explains."""
    counted = tuple(categories.replace(",", " ").split()) if categories else lemons.HARDWARE
    try:
        places = lemons.mapping(mapping.read_text("utf-8-sig", "replace")) if mapping else {}
    except OSError as error:
        raise UsageError(f"--map {mapping}: {error.strerror}", "name a CSV file with a column host") from None
    with opened(_named(where)) as store:
        fleet = lemons.fleet(store.rows(**conditions), store.involved(**conditions), places, counted)
    judged = lemons.judge(fleet, rate)
    return _json([vars(each) for each in judged]) if as_json else "\n".join(lemons.table(judged, rate))


def export(where: str | None, conditions: Conditions, out: str, anonymise: bool) -> None:
    """Write the incidents as a table."""
    from postmortem.fleet.history.export import table, written

    form = "ndjson" if out == "-" else Path(out).suffix.lstrip(".").lower()
    if out != "-":
        output.check_target(Path(out))
    with opened(_named(where)) as store:
        parts = store.rows(**conditions), store.involved(**conditions), store.notes(**conditions)
    found = table(*parts, Anonymizer() if anonymise else None)
    content = written(found, form)
    if out == "-":
        output.data(content)
        return
    output.write_file(Path(out), content)
    output.say(f"wrote {out}: {text.plural(len(found), 'incident')}")


def report(where: str | None, conditions: Conditions, folder: Path) -> None:
    """Write the pages. The overview comes last, so that it never links to a missing page."""
    from postmortem.fleet.history.pages import INDEX, pages

    with opened(_named(where)) as store:
        rows, involved = store.rows(**conditions), store.involved(**conditions)
    site = pages(rows, involved, time.time(), folder.absolute())
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}", "name a folder that you may write") from None
    for name in sorted(site, key=lambda name: name == INDEX):
        output.write_file(folder / name, site[name])
    output.say(f"wrote {folder / INDEX}: {text.plural(len(rows), 'filed job')}")


def _json(value: Any) -> str:
    return harmless(dump(json.loads(json.dumps(value, default=str)), indent=1, order=False))
