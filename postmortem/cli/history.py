"""`postmortem history`: add, list, show, annotate, export and forget incidents of a store."""

from __future__ import annotations

import getpass
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postmortem.cli.filters import Query, filtered, known
from postmortem.cli.options import Anonymise, History, Json
from postmortem.errors import PathMissing, PostmortemError, UsageError
from postmortem.fleet.history import lemons
from postmortem.fleet.history.place import guard, place, restore, salvage
from postmortem.fleet.history.rows import clean, row, stamp
from postmortem.model.vocabulary import CATEGORIES, CAUSES
from postmortem.report import text
from postmortem.report.json import dump, harmless
from postmortem.system import output
from postmortem.system.arguments import HISTORY

if TYPE_CHECKING:
    from postmortem.fleet.history.store import Store

UNITS = {"h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
ID = 12  # characters of an ID that are shown
NOTE = 2000
SUFFIXES, JOURNAL = (".html", ".htm", ".json"), "run.jsonl"  # of files in a folder that are added
Id = Annotated[str, typer.Argument(metavar="ID", help="Incident, as `history list` shows it.")]
app = typer.Typer(
    name="history",
    add_completion=False,
    no_args_is_help=True,
    help="Store verdicts and find earlier ones: how often, on which hosts, and which fix helped.",
)


def _named(where: str | None) -> str:
    if not where:
        raise UsageError("no history given", f"--history FILE or URL, or set {HISTORY}")
    return where


def _opened(where: str | None, **how: bool) -> AbstractContextManager[Store]:
    from postmortem.fleet.history.store import opened

    return opened(_named(where), **how)


def _json(value: Any) -> str:
    return harmless(dump(json.loads(json.dumps(value, default=str)), indent=1, order=False))


@app.command()
def add(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...", help="Reports or documents of analyze, journals of run, or folders with them."
        ),
    ],
    history: History = None,
    anonymise: Annotated[
        bool, typer.Option("--anonymize", help="Store pseudonyms for names, the same ones in every incident.")
    ] = False,
) -> None:
    """Store incidents that were analyzed before, and runs that ended well. Known ones are not added again."""
    from postmortem.fleet.history.filing import Keyed, key, warn_of_network

    at = place(_named(history))
    warn_of_network(at)
    names = Keyed(key(at)) if anonymise else None
    incidents = good = known = 0
    documents = list(_documents(paths))
    with _opened(history, make=True) as store:
        for path in documents:
            try:
                new = _add(store, path, names)
            except PostmortemError:
                if str(path) in paths:
                    raise
                continue
            known += not new
            good += new and path.name == JOURNAL
            incidents += new and path.name != JOURNAL
    if not incidents and not good and not known:
        raise UsageError(f"{', '.join(paths)}: not a report of analyze", "give its HTML or JSON, or a folder of them")
    counts = {
        f"{text.plural(incidents, 'incident')} added": incidents or not good,
        f"{text.plural(good, 'run')} that ended well added": good,
        f"{known} known already": known,
    }
    output.say(", ".join(words for words, count in counts.items() if count))


def _documents(paths: Iterable[str]) -> Iterator[Path]:
    """Yield named files, and those in a folder that may be reports or journals."""
    for name in paths:
        path = Path(name)
        if path.is_dir():
            found = (p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES or p.name == JOURNAL)
            yield from sorted(p for p in found if p.is_file())
        elif path.exists():
            yield path
        else:
            raise PathMissing(f"{name} does not exist", "name a report of analyze, or a folder of them")


def _add(store: Store, path: Path, names: Any) -> bool:
    """File a document or a journal; True if it is new. Raise PostmortemError if it is neither."""
    from postmortem.fleet.history import filing
    from postmortem.fleet.history.filing import hidden
    from postmortem.replay import documents

    if path.name == JOURNAL:
        if (ran := filing.row_of_run(path, names)) is None:
            raise UsageError(f"{path}: a run that did not end well", "give the report of its analysis")
        return store.extend(ran)
    document, report = documents.read(path), str(path.absolute()) if path.suffix.lower() != ".json" else ""
    return store.file(row(document, report) if names is None else row(hidden(document, names), names.path(report)))


@app.command("list")
@filtered
def list_incidents(
    query: Query,
    history: History = None,
    limit: Annotated[int, typer.Option("-n", min=1, metavar="N", help="Maximum number of incidents.")] = 50,
    as_json: Json = False,
) -> None:
    """List incidents, the latest first."""
    with _opened(history) as store:
        rows = store.rows(**query, limit=limit)
    if as_json:
        return output.data(_json(rows))
    lines = [f"{'ID':<{ID}}  {'WHEN (UTC)':<16}  {'CATEGORY':<20}  VERDICT"]
    for each in rows:
        category, when = each["category"] or each["outcome"], each["when"][:16].replace("T", " ")
        lines.append(text.line(f"{each['uid'][:ID]}  {when}  {category:<20}  {each['headline']}", 300))
    return output.data("\n".join(lines) if rows else "no incidents")


@app.command()
def show(incident: Id, history: History = None, as_json: Json = False) -> None:
    """Show one incident: its record, its notes, and when the same one was seen."""
    with _opened(history) as store:
        from postmortem.fleet.history import resolved

        uid = store.find(incident)
        (found,) = store.rows(uid=uid)
        involved, notes = store.involved(uid=uid), store.notes(uid=uid)
        same, true = store.seen(uid, found["cause"]), resolved.of(store, uid)
    if as_json:
        found["involved"] = [{n: each[n] for n in ("kind", "name", "fault")} for each in involved]
        found["notes"] = [{n: each[n] for n in ("noted", "author", "text")} for each in notes]
        return output.data(_json({**found, "resolved": true, "history": same}))
    return output.data("\n".join(_record({**found, "resolved": true}, involved, notes, same)))


def _record(found: Query, involved: Sequence[Query], notes: Sequence[Query], same: Any) -> Iterator[str]:
    from postmortem.report import summary

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
        "resolved": found["resolved"],
        "fingerprint": found["fingerprint"],
        "seen": summary.history({"history": same}),
        "report": found["report"],
        "logs": found["logs"],
    }
    for name, value in facts.items():
        if value:
            yield f"  {name:<12} {text.line(value, 1000)}"
    for each in notes:
        author, words = text.line(each["author"] or "", 80), text.line(each["text"], NOTE)
        yield f"  {'note':<12} {each['noted'][:10]} {author}: {words}"


@app.command()
def check(history: History = None) -> None:
    """Check the file of a history for damage."""
    with _opened(history, reads=True) as store:
        count = len(store.rows())
    guard(place(str(history)), "integrity_check")
    output.data(f"{store.shown}: {text.plural(count, 'incident')}, no damage")


@app.command()
def repair(history: History = None) -> None:
    """Replace a damaged file by the copy of the last day, and by what can be read of the file."""
    at = place(_named(history))
    restore(at)
    with _opened(at.shown, make=True):  # creates missing tables
        count, more = salvage(at.file) if at.file else (0, 0)
    counted = f"{text.plural(count, 'incident')}, {more} of them from the damaged file, which is put aside"
    output.data(f"{at.shown}: {counted}")


def _author() -> str | None:
    try:
        return clean(getpass.getuser())
    except (OSError, KeyError, ImportError):
        return None


def _causes(incomplete: str) -> list[str]:
    return [name for name in CAUSES if name.startswith(incomplete)]


@app.command()
def note(
    incident: Id,
    words: Annotated[str, typer.Argument(metavar="TEXT", help="The cause, or the fix that helped.")],
    history: History = None,
) -> None:
    """Attach a note to an incident. A verdict with the same fingerprint quotes the latest note."""
    cleaned = clean(" ".join(words.split()), NOTE)
    if not cleaned:
        raise UsageError("the note is empty", 'postmortem history note ID "what helped"')
    with _opened(history) as store:
        uid = store.find(incident)
        store.note(uid, cleaned, _author())
    output.say(f"noted on {uid[:ID]}")


@app.command()
def resolve(
    incident: Id,
    cause: Annotated[
        str, typer.Option(metavar="CAUSE", help="The true cause: an id of the usual causes.", autocompletion=_causes)
    ],
    history: History = None,
) -> None:
    """Record the true cause of an incident. `history report` counts them; later lists of causes are weighed by them."""
    if cause not in CAUSES:
        from difflib import get_close_matches

        near = get_close_matches(cause, CAUSES, 3, 0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else "`postmortem explain CAUSE` describes one"
        raise UsageError(f"--cause {cause} does not exist", f"{hint}   (there are {', '.join(CAUSES)})")
    with _opened(history) as store:
        from postmortem.fleet.history import resolved

        uid = store.find(incident)
        count = resolved.resolve(store, uid, cause, _author())
    output.say(f"resolved {uid[:ID]}: {cause}" + (f", in {count} reports of this job" if count > 1 else ""))


@app.command()
@filtered
def hosts(
    query: Query,
    history: History = None,
    mapping: Annotated[
        Path | None,
        typer.Option("--map", metavar="FILE", help="CSV with a column host, and others such as rack and switch."),
    ] = None,
    categories: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Categories that count against a host, separated by commas, or all."),
    ] = None,
    rate: Annotated[
        float, typer.Option(min=0.0001, max=0.5, metavar="Q", help="Expected share of false accusations.")
    ] = 0.05,
    as_json: Json = False,
) -> None:
    """List hosts, GPUs, racks and switches that are at fault more often than chance explains."""
    counted = tuple(categories.replace(",", " ").split()) if categories else lemons.HARDWARE
    known("--categories", counted, ("all", *CATEGORIES))
    try:
        places = lemons.mapping(mapping.read_text("utf-8-sig", "replace")) if mapping else {}
    except OSError as error:
        raise UsageError(f"--map {mapping}: {error.strerror}", "name a CSV file with a column host") from None
    with _opened(history) as store:
        fleet = lemons.fleet(store.rows(**query), store.involved(**query), places, counted)
    judged = lemons.judge(fleet, rate)
    output.data(_json([vars(each) for each in judged]) if as_json else "\n".join(lemons.table(judged, rate)))


@app.command()
@filtered
def export(
    out: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE|-",
            help="Output file: .parquet, .csv or .ndjson; - is standard output, as ndjson.",
        ),
    ],
    query: Query,
    history: History = None,
    anonymise: Anonymise = False,
) -> None:
    """Write incidents as a table, one row each."""
    target = None if out == "-" else Path(out)
    if target:
        output.check_target(target)
    with _opened(history) as store:
        parts = store.rows(**query), store.involved(**query), store.notes(**query)
    from postmortem.fleet.history.export import table, written
    from postmortem.privacy.anonymize import Anonymizer

    found = table(*parts, Anonymizer() if anonymise else None)
    content = written(found, target.suffix.lstrip(".").lower() if target else "ndjson")
    if target is None:
        return output.data(content)
    output.write_file(target, content)
    return output.say(f"wrote {out}: {text.plural(len(found), 'incident')}")


@app.command()
@filtered
def report(
    query: Query,
    target: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the pages.")] = Path(
        "postmortem-history"
    ),
    history: History = None,
) -> None:
    """Write a static site: incidents over time, causes, hosts, and a page for each month."""
    with _opened(history) as store:
        from postmortem.fleet.history import resolved

        rows, involved, causes = store.rows(**query), store.involved(**query), resolved.table(store)
    from postmortem.fleet.history.pages import INDEX, pages

    site = pages(rows, involved, time.time(), target.absolute(), causes)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{target}: {error.strerror}", "name a folder that you may write") from None
    for name in sorted(site, key=lambda name: name == INDEX):  # last, so that it never links to a missing page
        output.write_file(target / name, site[name])
    output.say(f"wrote {target / INDEX}: {text.plural(len(rows), 'filed job')}")


@app.command()
def forget(
    incidents: Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Incidents to delete.")] = None,
    keep: Annotated[
        str | None, typer.Option(metavar="AGE", help="Delete all incidents that are older, such as 180d or 52w.")
    ] = None,
    history: History = None,
) -> None:
    """Delete incidents and their notes. Their reports stay."""
    if not incidents and keep is None:
        raise UsageError("nothing to forget", "name IDs, or an age: --keep 180d")
    before = stamp(time.time() - age(keep)) if keep is not None else None
    with _opened(history) as store:
        count = store.forget([store.find(name) for name in incidents or ()], before)
    output.say(f"{text.plural(count, 'incident')} forgotten")


def age(words: str) -> float:
    """Return the seconds of `180d`, `52w`, `12h`, `2y`."""
    number, unit = words.strip().lower()[:-1], words.strip().lower()[-1:]
    if unit not in UNITS or not (number.isascii() and number.isdigit() and len(number) <= 5):
        raise UsageError(f"--keep {words} is not a valid duration", "write it like this: --keep 180d")
    return int(number) * UNITS[unit]
