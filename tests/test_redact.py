"""Secrets are in no output and in no cut of a text, and the words of a training log remain.

Most secrets are planted: of a hundred kinds, made from their issuers' public formats. None was ever valid.

`--anonymise` leaves no name in any output, a failure remains readable, and the same input gives the same bytes.
"""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
import string
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report_cases import RENDERS

from conftest import ROOT, SAMPLES, solved, table, typed_rows
from postmortem import report
from postmortem.analyze import Options, analyze
from postmortem.privacy import Redactor, cut, window
from postmortem.privacy.anonymize import Anonymizer, anonymized
from postmortem.privacy.redact import FEW, MARK, Learned

sys.path.insert(0, str(ROOT / "benchmarks"))
from planted import AFTER, KINDS, MANY_LINES, Plant, leaked, plants

ALNUM = string.ascii_letters + string.digits
CUTS = (60, 80, 105, 160, 200, 300, 400, 1000, 2000, 4000, 16384)
PLANTS = list(plants(seed=3, count=20 * len(KINDS)))
WHOLE = ("cookie", "file-name")  # more than the planted secret is marked


@cache
def masked() -> list[Plant]:
    """Planted secrets of one line that are found."""
    single = (p for p in PLANTS if p.kind not in MANY_LINES and "\n" not in p.text)
    return [p for p in single if not leaked(p.secret, Redactor().text(p.text))]


ONE = st.deferred(lambda: st.sampled_from(masked()))


def test_planted_secrets_are_found_and_their_context_remains() -> None:
    missed = [p for p in PLANTS if leaked(p.secret, Redactor().text(p.text))]
    assert not [p for p in missed if p.kind not in AFTER]
    # the lines that were written after the rules have a few forms that only their tool knows
    counted, kinds = Counter(p.kind for p in missed), Counter(p.kind for p in PLANTS)
    assert [p.text for p in missed if counted[p.kind] > 0.3 * kinds[p.kind]] == []
    assert len(missed) <= 0.04 * sum(kinds[kind] for kind in AFTER), missed
    once = [p for p in masked() if p.kind not in WHOLE and "ookie: " not in p.text and p.text.count(p.secret) == 1]
    assert len(once) > 0.9 * len(masked())
    for p in once:
        before, after = p.text.split(p.secret)
        clean = Redactor().text(p.text)
        assert clean.startswith(before[:20]) and clean.endswith(after[-10:])
        assert len(MARK.findall(clean)) == 1, clean


def test_ordinary_lines_are_left_alone() -> None:
    """Whole lines, as their emitters write them."""
    assert (lines := (ROOT / "tests" / "data" / "ordinary_lines.txt").read_text().splitlines())
    for line in lines:
        assert Redactor().text(line) == line


PEM = "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----"
BODY = ["".join(random.Random(n).choices(ALNUM + "+/", k=64)) for n in range(24)] + ["Zk4Qm8Xw2Lr6Tn0V=="]


def test_private_keys_whole_cut_and_prefixed() -> None:
    whole = PEM.format("\n".join(BODY))
    lines = whole.split("\n")
    assert Redactor().text(whole).count("[REDACTED:private-key:1]") == len(BODY)
    no_end = "\n".join(lines[:12]) + "\nTraceback (most recent call last):\n"
    assert "Traceback" in Redactor().text(no_end)
    for text in (
        whole,
        no_end,
        "\n".join("[rank0]: " + line for line in lines),
        "\n".join(lines[5:]),  # without BEGIN
        json.dumps({"private_key": whole}),
    ):
        clean = Redactor().text(text)
        assert not any(line in clean for line in BODY), clean
    clean = Redactor().document({"before": lines[:9], "after": lines[9:]})
    assert not any(line in json.dumps(clean) for line in BODY)
    assert isinstance(clean, dict) and [len(part) for part in clean.values()] == [9, len(lines) - 9]


@given(
    st.text(max_size=400)
    | st.lists(
        st.sampled_from(
            ["password=", "token", "\n", "'", '"', "-----BEGIN PRIVATE KEY-----", "eyJ", "://", ":", "@", "a1" * 12]
        )
    ).map("".join)
)
@settings(max_examples=150)
def test_any_text_keeps_its_lines_and_a_second_time_changes_nothing_more(text: str) -> None:
    once = Redactor().text(text)
    assert once.count("\n") == text.count("\n")
    assert Redactor().text(once).count("\n") == once.count("\n")


@given(plant=ONE, length=st.sampled_from(CUTS), place=st.floats(-0.2, 1.2), front=st.sampled_from("x ,"))
@settings(max_examples=150)
def test_no_cut_leaves_a_part_of_a_secret(plant: Plant, length: int, place: float, front: str) -> None:
    """The cut falls somewhere in the line that holds the secret, or right beside it."""
    before = (front + " ") * max(0, (length - round(place * len(plant.text))) // 2)
    text = before + plant.text + " and more" * 20
    shown = Redactor().text(cut(text, length))
    assert len(cut(text, length)) <= length and text.startswith(cut(text, length))
    assert not leaked(plant.secret, shown), shown[-200:]
    start = min(len(text), len(before) + max(0, round(place * len(plant.text))))
    low, high = window(text, start, start + length)
    assert start <= low <= high <= start + length
    assert not leaked(plant.secret, Redactor().text(text[low:high]))


@given(
    chosen=st.lists(ONE, min_size=8, max_size=16, unique_by=lambda p: p.kind),
    lengths=st.lists(st.sampled_from(CUTS), min_size=16, max_size=16),
    places=st.lists(st.floats(-0.2, 1.2), min_size=16, max_size=16),
)
@settings(max_examples=3, suppress_health_check=list(HealthCheck))
def test_no_output_holds_a_part_of_a_secret(
    tmp_path_factory: pytest.TempPathFactory, chosen: list[Plant], lengths: list[int], places: list[float]
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    (folder / "rank0.log").write_text("".join(_failure(*row) for row in zip(chosen, lengths, places, strict=False)))
    (folder / "rank1.log").write_text("step 1 loss 0.3\nstep 2 loss 0.2\n" + "".join(p.text + "\n" for p in chosen))
    found = analyze([str(folder)], Options(workers=1))
    for render in RENDERS:
        shown = render(found)
        left = [p for p in chosen if leaked(p.secret, shown)]
        assert not left, (render.__name__, left)


def _failure(plant: Plant, length: int, place: float) -> str:
    """An exception with the line in its message, at a place where it is cut."""
    pad = "p " * max(0, (length - round(place * len(plant.text))) // 2)
    return (
        f"{plant.text}\nTraceback (most recent call last):\n"
        f'  File "/job/train.py", line 7, in main\n    connect("{plant.text}")\n'
        f"ConnectionError: {pad}{plant.text} was refused\n{plant.text}\n"
    )


def test_a_verdict_does_not_depend_on_redaction(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text(_failure(masked()[0], 60, 0.5) + _failure(masked()[1], 105, 0.5))

    def facts(redact: bool) -> dict[str, Any]:
        verdict = analyze([str(tmp_path)], Options(workers=1, redact=redact)).document["verdict"]
        return {key: verdict[key] for key in ("outcome", "category", "pattern", "confidence", "culprit")}

    assert facts(True) == facts(False)


def test_a_secret_in_a_file_name_is_in_no_output(tmp_path: Path) -> None:
    secret = "hf_" + "aB3dE6gH9jK2mN5pQ8sT" * 2
    folder = tmp_path / f"run-{secret}"
    folder.mkdir()
    (folder / "token=Zk4Qm8Xw2Lr6Tn0Vb5Yc.log").write_text(_failure(masked()[2], 60, 2.0))
    found = analyze([str(tmp_path)])
    for render in RENDERS:
        shown = render(found)
        assert secret[6:] not in shown and "Zk4Qm8Xw2Lr6Tn0Vb5Yc" not in shown
    assert [s["path"] for s in found.document["sources"]] == [typed_rows(found)[0].where.source]


def test_a_secret_quoted_in_lower_case_is_gone(tmp_path: Path) -> None:
    """Sentences quote pieces of a line without their context."""
    error = "Fatal Python error: password=Tr0ub4dor7x Segmentation fault\n\nThread 0x1 (most recent call first):\n"
    (tmp_path / "rank0.log").write_text(error + '  File "a.py", line 1 in f\n')
    shown = report.render_json(analyze([str(tmp_path)]))
    assert "tr0ub4dor7x" not in shown.lower()


@pytest.mark.slow
def test_many_learned_secrets_cost_no_more_than_few() -> None:
    learned = Learned()
    for n in range(FEW + 200):
        learned.add(f"secret{n:04}abcdefghij", f"[{n}]")
    assert learned.replaced("a secret0007abcdefghij, secret0263abcdefghij and secret9999abcdefghij") == (
        "a [7], [263] and secret9999abcdefghij"
    )
    hostile = [f"api_token{n}=Zk4Qm8Xw2Lr6Tn0Vb5Yc{n:06}" for n in range(8_000)]
    start = time.process_time()
    Redactor().texts(hostile)
    assert time.process_time() - start < 20


@pytest.mark.parametrize("bad", [
    "password" * 20_000, "a" * 400_000, "eyJ" * 60_000, "://" * 60_000 + "@", "token=" + "a1" * 100_000,
    "wandb " * 40_000, "-----BEGIN PRIVATE KEY-----\n" * 4_000,
])  # fmt: skip
def test_hostile_text_costs_linear_time(bad: str) -> None:
    start = time.process_time()
    Redactor().text(bad)
    assert time.process_time() - start < 5


def test_equal_secrets_have_equal_marks_numbered_by_first_appearance() -> None:
    a, b = ("hf_" + "".join(random.Random(seed).choices(ALNUM, k=34)) for seed in (1, 2))
    redactor = Redactor()
    assert (
        redactor.text(f"{a} then {b} then {a}")
        == "[REDACTED:hf-token:1] then [REDACTED:hf-token:2] then [REDACTED:hf-token:1]"
    )
    assert redactor.text(f"HF_TOKEN={b}") == "HF_TOKEN=[REDACTED:hf-token:2]"
    assert Redactor().text(b) == "[REDACTED:hf-token:1]"


@pytest.mark.parametrize("more", [0, 100])
def test_a_secret_that_is_part_of_a_mark_nests_no_mark(more: int) -> None:
    redactor = Redactor()
    for number in range(more):
        redactor.text(f"api_key=q{number:03}W7kz99Tp4mX2vB8")
    redactor.path("/data/db_password=secret/x")
    for _ in range(2):
        shown = redactor.text("api_key=abcd1234efgh5678, the secret/x")
        assert shown == f"api_key=[REDACTED:secret:{more + 1}], the [REDACTED:password:1]/x"


def test_lines_that_differ_in_digits_only_are_each_searched() -> None:
    """The rules for a line are cached by the line without its digits."""
    first, second = "ya29." + "a1B2c3D4e5F6g7H8i9J0k", "ya29." + "a2B3c4D5e6F7g8H9i0J1k"
    shown = Redactor().texts([f"rank 1 key {first}", f"rank 22 key {second}", "rank 3 key of 29 bytes"])
    assert shown == [
        "rank 1 key [REDACTED:gcp-token:1]",
        "rank 22 key [REDACTED:gcp-token:2]",
        "rank 3 key of 29 bytes",
    ]


def test_the_name_in_one_place_marks_a_secret_in_others() -> None:
    key = "0a1b2c3d4e" * 4
    document = {
        "argv": f"sweep.py {key}",
        "log": f"wandb: key: {key}",
        "env": {"DB_PASSWORD": "hunter2", "HF_TOKEN": "short7", "MAX_TOKENS": "12"},
        "command": ["--token", "abc1234", "--lr", "1"],
    }
    assert Redactor().document(document) == {
        "argv": "sweep.py [REDACTED:wandb-key:1]",
        "log": "wandb: key: [REDACTED:wandb-key:1]",
        "env": {"DB_PASSWORD": "[REDACTED:password:1]", "HF_TOKEN": "[REDACTED:secret:1]", "MAX_TOKENS": "12"},
        "command": ["--token", "[REDACTED:secret:2]", "--lr", "1"],
    }


@pytest.mark.parametrize(("text", "shown"), table("redact")["contexts"])
def test_the_context_of_a_secret_remains(text: str, shown: str) -> None:
    assert Redactor().text(text) == shown


def test_a_token_over_two_lines_is_one_secret() -> None:
    secret = "hf_" + "aB3dE6gH9jK2mN5pQ8sT" * 2
    clean = Redactor().document({"context": [f"bad key {secret[:12]}", f"{secret[12:]} (401)", "next"]})
    assert clean == {"context": ["bad key [REDACTED:hf-token:1]", "[REDACTED:hf-token:1] (401)", "next"]}
    assert "aB3d" not in json.dumps(clean)


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
@settings(max_examples=100)
def test_a_known_host_is_hidden_in_every_form(
    host: str, change: Callable[[str], str], before: str, behind: str
) -> None:
    names = Anonymizer()
    names.learn({"host": host})
    shown = json.dumps({"x": names.text(before + change(host) + behind)}).lower()
    assert host.lower() not in shown
