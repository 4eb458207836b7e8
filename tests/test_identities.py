"""`--anonymise` leaves no name in any output, a failure remains readable, and the same input gives the same bytes."""

from __future__ import annotations

import base64
import gzip
import json
import re
import string
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_cases import RENDERS

from conftest import SAMPLES, solved, table
from postmortem import report
from postmortem.analyze import analyze
from postmortem.privacy.anonymize import Anonymizer, anonymized

NAMES = table("identities")["names"]
HOSTS, USERS, WORK = NAMES["hosts"], NAMES["users"], NAMES["work"]
ALL = [name for names in NAMES.values() for name in names]


def lines_of(host: str, user: str, rank: int) -> list[str]:
    """Lines that show by their form which word is which name, and lines with the same names alone."""
    four, six, work, domain = (NAMES[kind][rank % len(NAMES[kind])] for kind in ("fours", "sixes", "work", "domains"))
    mac, bucket = NAMES["macs"][rank % 2], NAMES["buckets"][rank % 2]
    site, loader, other = NAMES["others"]
    upper = {"HOST": host, "USER": user, "SIX": six, "WORK": work, "DOMAIN": domain, "OTHER": other}
    words = {name: word.upper() for name, word in upper.items()} | {name.lower(): word for name, word in upper.items()}
    words |= {"four": four, "mac": mac, "bucket": bucket, "site": site, "loader": loader, "Host": host.capitalize()}
    words |= {"pid": str(812 + rank), "tid": str(912 + rank), "function": work.replace("-", "_")}
    return [line.format(**words) for line in table("identities")["lines"]]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("job")
    for rank in range(len(HOSTS)):
        host, user = HOSTS[rank], USERS[rank % len(USERS)]
        lines = []
        for n, line in enumerate(lines_of(host, user, rank)):
            lines += [
                f"2026-11-20 21:0{rank}:{n:02},633 INFO [rank{rank}] {line}",
                f"[rank{rank}]: Traceback (most recent call last):",
                f'[rank{rank}]:   File "/home/{user}/{WORK[rank % len(WORK)]}/train.py", line {n + 7}, in <module>',
                f"[rank{rank}]:     main()",
                f"[rank{rank}]: RuntimeError: {line}",
            ]
        folder = root / "logs" / WORK[rank % len(WORK)] / host
        folder.mkdir(parents=True)
        (folder / f"rank{rank}.log").write_text("\n".join(lines) + "\n")
    return root / "logs"


def block(html: str) -> str:
    """The packed events of the page as text."""
    packed = re.findall(r'"(H4sI[A-Za-z0-9+/=]+)"|>(H4sI[A-Za-z0-9+/=]+)<', html)
    return "\n".join(gzip.decompress(base64.b64decode(a or b)).decode("latin-1") for a, b in packed)


def forms(identity: str) -> set[str]:
    lower = identity.lower()
    return {lower, lower.replace("-", "_"), lower.replace("_", "-"), lower.replace(".", "-"), lower.replace(":", "-")}


def test_forty_identities_survive_in_no_output(job: Path) -> None:
    assert len(ALL) == 40
    found = analyze([str(job)])
    plain = report.render_ndjson(found).lower()
    missing = [name for name in ALL if name.lower() not in plain]
    assert not missing, f"not planted where it shows: {missing}"
    assert "falcon" in block(report.render_html(found)).lower(), "the page has its packed events"
    hidden = anonymized(found)
    assert report.render_html(hidden) == report.render_html(anonymized(found))
    for render in RENDERS:
        shown = render(hidden)
        shown = (shown + (block(shown) if render is report.render_html else "")).lower()
        left = {form: _around(shown, form) for name in ALL for form in forms(name) if form in shown}
        assert not left, (render.__name__, left)


def _around(text: str, word: str) -> str:
    at = text.find(word)
    return text[max(0, at - 60) : at + 60]


def test_the_key_names_everybody_and_is_the_same_every_time(job: Path) -> None:
    names, again = Anonymizer(), Anonymizer()
    found = analyze([str(job)])
    anonymized(found, names)
    anonymized(found, again)
    assert names.key == again.key
    assert {name.lower() for name in (*HOSTS, *USERS)} <= {value.lower() for value in names.key.values()}


def clean(text: str, *hosts: str) -> str:
    names = Anonymizer()
    for host in hosts:
        names.learn(host, "host")
    names.learn_text(text)
    return names.text(text)


PSEUDONYMS = table("identities")["pseudonyms"]
KEPT = table("identities")["kept"]
ADDRESSES = table("identities")["addresses"]


def test_names_become_pseudonyms_and_words_of_every_machine_remain() -> None:
    for text, shown in PSEUDONYMS:
        hosts = [host for host in ("gpu7.", "node-0112") if host in text]
        assert clean(text, *(host.strip(".") for host in hosts)) == shown
    for text in KEPT:
        assert clean(text) == text
    for text, shown in ADDRESSES.items():
        assert Anonymizer().text(text) == shown


def test_places_remain_readable_and_pseudonyms_follow_the_paths() -> None:
    hidden = anonymized(solved(SAMPLES / "oom-on-second-host"))
    assert "host-2/kernel/dmesg.txt:85" in report.render_markdown(hidden)
    paths = [source["path"] for source in hidden.document["sources"]]
    assert {item["source"] for item in hidden.document["verdict"]["evidence"]} <= set(paths)
    assert paths[0].startswith("host-1/") and paths[-1].startswith("host-2/")
    assert [rank["host"] for rank in hidden.document["ranks"]] == ["host-1", "host-1", "host-2", "host-2"]
    assert "node-" not in json.dumps(
        anonymized(replace(solved(SAMPLES / "oom-on-second-host"), timeline=None)).document
    )


NAME = st.text(string.ascii_lowercase, min_size=5, max_size=9).map(lambda s: f"q{s}-{len(s)}x")


@given(
    host=NAME,
    change=st.sampled_from([str, str.upper, str.capitalize]),
    before=st.sampled_from(["", "on ", "@", "_", "/", '"', "(", "%2F", "\\n", "x-", "10."]),
    behind=st.sampled_from(
        ["", "_ib0", "-eth1", ".acme.example", ":29500", "/x.log", "'s", '"', "%2F", "[0]", ".local"]
    ),
)
@settings(max_examples=100, deadline=None)
def test_a_known_host_is_hidden_in_every_form(
    host: str, change: Callable[[str], str], before: str, behind: str
) -> None:
    names = Anonymizer()
    names.learn({"host": host})
    shown = json.dumps({"x": names.text(before + change(host) + behind)}).lower()
    assert host.lower() not in shown
