"""`postmortem diff A B`: the report of two runs that differ, and none of two that do not."""

from __future__ import annotations

import gzip
import json
import random
import re
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from conftest import SAMPLES, SCREENS, Command, table
from postmortem import Options
from postmortem import input as collect
from postmortem.analyze import _usual
from postmortem.fleet.diff import run
from postmortem.fleet.diff.comparison import compare
from postmortem.fleet.diff.run import pace
from postmortem.formats.lineform import alike
from postmortem.model import Source
from postmortem.reading.distinct import LineObserver, Once, Pace
from postmortem.report.difference import FORMS, render
from postmortem.system import resources

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DAY = 1_795_000_000.0


def job(folder: Path, seed: int, *, ranks: int = 4, torch: str = "2.5.1", **more: Any) -> Path:
    """The logs of a run that goes well, a file for each rank. What no two runs of one job share depends on the
    seed: times, pids, ports, losses, hosts, ids, folders, and how long each step takes."""
    chance = random.Random(seed)
    step_s, lr, extra = more.get("step_s", 1.0), more.get("lr", "0.0003"), more.get("extra", {})
    run, host = f"run-{chance.randrange(16**8):08x}", more.get("host") or f"gpu-{chance.randrange(900):03}"
    began = DAY + chance.random() * 1e6
    for rank in range(ranks):
        at, log = began, list[tuple[float, str, str]]()
        log.append((at, "INFO", f"process group ready: rank {rank} of {ranks}, pid {chance.randrange(30_000)}"))
        log.append((at, "INFO", f"torch {torch}, listening on {host}:{chance.randrange(65_000)}"))
        log.append((at, "INFO", f"config lr={lr} batch_size={more.get('batch_size', 64)} ms_to_start={at % 1}"))
        for step in range(0, 200, 5):
            at += 5 * step_s * chance.uniform(0.9, 1.15)
            norm = f"{chance.uniform(0, 9) - 4:.3g}"
            log.append((at, "INFO", f"step {step} loss {chance.uniform(1, 3):.4f} grad_norm {norm}"))
            log += [(at, level, words) for words, level in extra.get(rank, {}).get(step, ())]
            if step % 50 == 0:
                saved = f"saved /data/{run}/ckpt_{step}_{chance.randrange(16**12):012x}.pt"
                log.append((at, "INFO", saved))
        log.append((at, "INFO", "training finished"))
        lines = [f"{stamp(at)} {level} [rank{rank}] train: {words}" for at, level, words in log]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"rank{rank}.log").write_text("\n".join(lines) + "\n")
    return folder


def stamp(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at)) + f",{int(at * 1000) % 1000:03}"


def rows(found: Any, kind: str) -> list[tuple[str, str | None, str | None, bool]]:
    return [(r["name"], r["a"], r["b"], r["matters"]) for r in found["differences"] if r["kind"] == kind]


def test_two_healthy_runs_of_one_job_do_not_differ(tmp_path: Path) -> None:
    """Times, pids, ports, losses, hosts, folders and ids differ."""
    for seed in range(3):
        a, b = tmp_path / f"a{seed}", tmp_path / f"b{seed}"
        found = compare(str(job(a, seed)), str(job(b, seed + 100)))
        assert found["headline"] == "No difference that matters." and not found["differs"]
        assert found["lines"] == [] and not [row for row in found["differences"] if row["matters"]]
        assert found["a"]["outcome"] == found["b"]["outcome"] == "healthy"
    for a, b in (
        ("healthy-two-hosts", "healthy-clock-ahead"),  # c10d warns of a lookup in one of them
        ("healthy-torchrun", "healthy-torchrun"),
        ("healthy-noisy-tree", "healthy-noisy-tree"),
    ):
        found = compare(str(SAMPLES / a / "logs"), str(SAMPLES / b / "logs"))
        assert found["headline"] == "No difference that matters." and not found["differs"]


def test_the_headline_has_versions_world_settings_and_the_first_line_of_a_rank(tmp_path: Path) -> None:
    """The good run had 4 ranks and torch 2.5.1. The other has more of both, and a new line of rank 3."""
    words = "falling back to the slow attention kernel: head size 96 is not supported"
    extra = {3: {120: [(words, "WARNING")]}}
    a, b = job(tmp_path / "a", 1), job(tmp_path / "b", 2, ranks=6, torch="2.6.0", extra=extra, batch_size=48)
    found = compare(str(a), str(b))
    head = "B has torch 2.6.0 where A has 2.5.1, 6 ranks where A has 4 and batch_size=48 where A has 64"
    assert found["headline"].startswith(f"{head}; rank 3 of B first prints “train: {words[:60]}")
    assert found["headline"].endswith("” after step 120, which A never prints.")
    assert rows(found, "version") == [("torch", "2.5.1", "2.6.0", True)]
    assert rows(found, "world") == [("world_size", "4 ranks", "6 ranks", True)]
    assert rows(found, "setting") == [("batch_size", "64", "48", True)]
    (line,) = (line for line in found["lines"] if line["only_in"] == "b")
    assert (line["ranks"], line["step"], line["source"]) == ([3], 120, "rank3.log") and words in line["text"]
    assert line["line"] and words in (b / "rank3.log").read_text().splitlines()[line["line"] - 1]


def test_a_rank_with_another_version_than_its_peers_is_named(tmp_path: Path) -> None:
    a, b = job(tmp_path / "a", 1), job(tmp_path / "b", 2)
    log = b / "rank2.log"
    log.write_text(log.read_text().replace("torch 2.5.1", "torch 2.4.0"))
    found = compare(str(a), str(b))
    assert rows(found, "version") == [("torch", "2.5.1", "2.5.1 (ranks 0, 1 and 3) and 2.4.0 (rank 2)", True)]


def test_a_longer_step_time_is_reported_and_one_pause_is_not(tmp_path: Path) -> None:
    a, slow = job(tmp_path / "a", 1), job(tmp_path / "slow", 2, step_s=1.8)
    assert rows(compare(str(a), str(slow)), "step-time")[0][3]
    steady = [Pace(("x", 0), n, float(n)) for n in range(40)]
    paused = [p._replace(time=p.time + 600 * (p.step > 20)) for p in steady]
    one, other = pace(steady), pace(paused)
    assert one and other and one.median == other.median == 1.0
    assert pace(steady[:5]) is None


def test_the_failure_of_one_run_and_a_common_cause_are_reported() -> None:
    a, b = (SAMPLES / name / "logs" for name in ("healthy-torchrun", "bad-label-one-rank"))
    found = compare(str(a), str(b))
    assert found["headline"].startswith("B failed where A ended well: Rank 2 raised ValueError: sample 67")
    assert found["differences"][0]["kind"] == "verdict"
    first = found["lines"][0]
    assert first["only_in"] == "b" and first["ranks"] == [2] and first["trouble"]
    assert first["text"].endswith("ValueError: sample 67: label 4711 outside of [0, 10)")
    back = compare(str(b), str(a))
    assert back["headline"].startswith("B ended well where A failed (Python exception)")
    a, b = (SAMPLES / name / "logs" for name in ("sigkill-from-outside", "sigkill-on-second-host"))
    assert compare(str(a), str(b))["headline"].startswith("Both failed (external signal) of the same cause")


def test_the_halves_of_a_split_line_are_no_lines(tmp_path: Path) -> None:
    """Two ranks share a console, and write at once."""
    whole = ["rank 0 loaded the tokenizer of the model", "rank 1 compiled the graph of the model"]
    split = ["rank 0 loaded the tokenizer of the modelrank 1 compiled the graph of the model", ""]
    split += ["rank 0 loaded the token", "rank 1 compiled the graph of the model", "izer of the model"]
    for name, lines in (("a", whole), ("b", split)):
        steps = [f"step {n} loss {n}.5" for n in range(20)]
        (tmp_path / f"{name}.log").write_text("\n".join([*lines, *steps, "training finished"]) + "\n")
    assert compare(str(tmp_path / "a.log"), str(tmp_path / "b.log"))["lines"] == []


def test_the_environment_is_compared_without_variables_of_every_run(tmp_path: Path) -> None:
    for name, added in (("a", "NCCL_IB_HCA=mlx5_0"), ("b", "NCCL_IB_HCA=mlx5_2\nNCCL_P2P_DISABLE=1")):
        folder = job(tmp_path / name, len(name) + ord(name))
        own = f"SLURM_JOB_ID={ord(name)}\nMASTER_PORT=29{ord(name)}\nHF_TOKEN=hf_{name * 34}\nPWD=/w/{name}\n"
        (folder / "environment.txt").write_text(f"{own}LANG=C\nOMP_NUM_THREADS=8\n{added}\n")
    found = compare(str(tmp_path / "a"), str(tmp_path / "b"))
    names = [row[:3] for row in rows(found, "setting")]
    assert names == [("NCCL_IB_HCA", "mlx5_0", "mlx5_2"), ("NCCL_P2P_DISABLE", None, "1")]
    assert "hf_" not in json.dumps(found)


def test_each_log_is_opened_once_and_each_byte_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict, the lines, the steps and the settings come from one pass."""
    opened: list[str] = []
    real = collect.open_sources

    def counted(container: Any, *rest: Any) -> Any:
        opened.append(container.label)
        return real(container, *rest)

    monkeypatch.setattr(collect, "open_sources", counted)
    extra = {3: {120: [("falling back to the slow kernel", "WARNING")]}}
    found = compare(str(job(tmp_path / "a", 1)), str(job(tmp_path / "b", 2, extra=extra)))
    assert found["lines"][0]["step"] == 120 and found["a"]["step_s"]
    assert sorted(opened) == sorted([f"rank{n}.log" for n in range(4)] * 2)


def test_distinct_lines_do_not_depend_on_the_pieces(tmp_path: Path) -> None:
    data = b"".join((job(tmp_path / "a", 1) / f"rank{n}.log").read_bytes() for n in range(4)) * 3
    found = []
    for piece in (len(data), 7, 4096):
        observer = LineObserver(Source("x", "console", len(data)))
        for at in range(0, len(data), piece):
            observer.feed(data[at : at + piece])
        found.append(observer.result())
    assert found[0] == found[1] == found[2] and len(found[0].lines) == 6


def test_no_line_is_missing_in_a_truncated_log(tmp_path: Path) -> None:
    a, b = job(tmp_path / "a", 1), job(tmp_path / "b", 2)
    packed = gzip.compress((a / "rank2.log").read_bytes())
    (a / "rank2.log").unlink()
    (a / "rank2.log.gz").write_bytes(packed[: len(packed) // 2])
    found = compare(str(a), str(b))
    assert "Not all lines of A were read, so no line is reported as missing there." in found["uncompared"]
    assert not [line for line in found["lines"] if line["only_in"] == "b"]


def test_the_form_of_a_line_has_its_words_and_not_its_values() -> None:
    hosts = frozenset({"gpu-017", "gpu-3"})
    for one, other in table("diff")["alike"].items():
        assert alike(one, hosts) == alike(other, hosts)
    for one, other in (("loss 2.5", "loss nan"), ("using flash attention", "using eager attention"), ("fp16", "bf16")):
        assert alike(one) != alike(other)


def test_versions_and_settings_are_read_from_lines() -> None:
    for text, values in table("diff")["versions"].items():
        found = run.versions([Once(text, 0, "console")])
        assert {name: next(iter(ranks)) for name, ranks in found.items()} == values
    for text, values in table("diff")["settings"].items():
        found = run.settings([Once(text, 0, "console")])
        assert {name: next(iter(ranks)) for name, ranks in found.items()} == values


def test_a_baseline_knows_each_line_of_the_healthy_run(tmp_path: Path) -> None:
    """A complaint that the healthy run prints too is no lead, though its parser keeps but sixty of them."""
    words = ["".join("abcdefghij"[int(digit)] for digit in f"{n:03}") for n in range(150)]
    lines = [*(f"WARNING: shard {word} failed to load, retrying" for word in words), "training finished"]
    (tmp_path / "rank0.log").write_text("\n".join(lines) + "\n")
    usual = _usual(tmp_path, Options())
    assert {alike(line) for line in lines} <= usual
    assert alike("WARNING: the moon failed to load, retrying") not in usual


def test_documents_and_pages_of_analyze_are_compared(tmp_path: Path, in_process: Command) -> None:
    """A document has not all lines: none is reported as missing there."""
    bad, good = SAMPLES / "bad-label-one-rank" / "logs", SAMPLES / "healthy-torchrun" / "logs"
    in_process("analyze", bad, "-o", "b.html", "-o", "b.json", "--quiet")
    in_process("analyze", good, "-o", "a.json", "--quiet")
    for name in ("b.html", "b.json"):
        found = compare(str(good), str(tmp_path / name))
        assert not found["b"]["logs"] and found["a"]["logs"]
        assert found["headline"].startswith("B failed where A ended well: Rank 2 raised ValueError")
        assert any("ValueError" in line["text"] for line in found["lines"] if line["only_in"] == "b")
        assert not [line for line in found["lines"] if line["only_in"] == "a"]
        assert any(text.startswith("B is a document") for text in found["uncompared"])
    both = compare(str(tmp_path / "a.json"), str(tmp_path / "b.json"))
    assert both["differs"] and both["lines"] == []


def test_an_archive_is_its_logs(tmp_path: Path) -> None:
    folder = job(tmp_path / "a", 1)
    with tarfile.open(tmp_path / "b.tar.gz", "w:gz") as archive:
        archive.add(folder, "logs")
    found = compare(str(folder), str(tmp_path / "b.tar.gz"))
    assert not found["differs"] and found["b"]["logs"]


def test_a_secret_is_masked_in_lines_and_settings(tmp_path: Path) -> None:
    secret = "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567"
    extra = {1: {20: [(f"retrying the download with {secret}, mode={secret}", "WARNING")]}}
    found = compare(str(job(tmp_path / "a", 1)), str(job(tmp_path / "b", 2, extra=extra)))
    assert "REDACTED" in found["headline"]
    assert not [form for form in FORMS if secret in render(found, form)]


def test_unusable_inputs_are_refused_and_none_is_overwritten(in_process: Command, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("step 1\n")
    for words in (("-", "x"), ("nowhere", "nowhere"), (log, log, "-o", log), (log, log, "--anonymise-map", log)):
        done = in_process("diff", *words)
        assert done.returncode == 2 and done.stderr.startswith("postmortem: ") and done.stdout == ""
    assert log.read_text() == "step 1\n"


@pytest.mark.parametrize("form", FORMS)
def test_an_anonymized_comparison_has_no_names(tmp_path: Path, in_process: Command, form: str) -> None:
    """A host has one pseudonym on both sides; the key is in a file that only its owner can read."""
    a, b = tmp_path / "a", tmp_path / "b"
    job(a / "falcon-x1", 1)
    job(b / "falcon-x2", 2, extra={1: {20: [("cannot write /home/walburga/exp9/x.pt", "ERROR")]}})
    log = b / "falcon-x2" / "rank1.log"
    log.write_text(f"{log.read_text()}ERROR falcon-x1 refused walburga, unlike falcon-x2\n")
    done = in_process("diff", a, b, "--format", form, "--anonymise-map", tmp_path / "key.json")
    assert done.returncode == 0, done.stderr
    assert "user-1" in done.stdout and not re.search("(?i)falcon|walburga|exp9", done.stdout)
    names = json.loads((tmp_path / "key.json").read_text())
    assert {"falcon-x1", "falcon-x2", "walburga"} <= set(names.values())
    assert (tmp_path / "key.json").stat().st_mode & 0o777 == 0o600
    plain = in_process("diff", a, b, "--format", form).stdout
    assert "walburga" in plain
    good, bad = (SAMPLES / name / "logs" for name in ("healthy-two-hosts", "oom-on-second-host"))
    shown = in_process("diff", good, bad, "--format", form, "--anonymise").stdout
    assert "Rank 3 on host-2 was killed" in " ".join(shown.split())
    assert not re.search(r"node-[ab]\b|oom-on-second", shown)


def test_progress_is_reported_for_each_run(tmp_path: Path) -> None:
    calls: list[tuple[int, int, str]] = []
    compare(str(job(tmp_path / "a", 1)), str(job(tmp_path / "b", 2)), (), lambda *call: calls.append(call))
    for name in "AB":
        own = [call for call in calls if call[2].startswith(f"{name}: ")]
        assert [what for *_, what in own] == [*(f"{name}: rank{n}.log" for n in range(4)), f"{name}: diagnosing"]
        assert own[-1][0] == own[-1][1] > 0


def test_the_exit_code_reports_a_difference_on_request(tmp_path: Path, in_process: Command) -> None:
    a, b = job(tmp_path / "a", 1), job(tmp_path / "b", 2, torch="2.6.0")
    assert in_process("diff", a, b).returncode == 0
    assert in_process("diff", a, b, "--exit-code").returncode == 13
    done = in_process("diff", a, a, "--exit-code", "-o", "d.html", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "") and (tmp_path / "d.html").exists()


def test_each_form_begins_with_the_sentence(tmp_path: Path, in_process: Command) -> None:
    a, b = job(tmp_path / "a", 1), job(tmp_path / "b", 2, torch="2.6.0")
    sentence = "B has torch 2.6.0 where A has 2.5.1."
    assert sentence in in_process("diff", a, b).stdout.splitlines()
    assert in_process("diff", a, b, "--format", "md").stdout.startswith(f"# {sentence}")
    document = json.loads(in_process("diff", a, b, "--format", "json").stdout)
    jsonschema.validate(document, json.loads(resources.schema("diff")))
    assert document["headline"] == sentence
    done = in_process("diff", a, b, "-o", "d.html")
    assert done.stdout == "" and sentence in done.stderr
    page = (tmp_path / "d.html").read_text()
    assert f'<h1 id="headline">{sentence}</h1>' in page
    embedded = re.search(r'<script type="application/json" id="postmortem-diff">(.*?)</script>', page, re.S)
    assert embedded and json.loads(embedded[1])["headline"] == sentence


def test_quoted_log_text_is_inert(tmp_path: Path) -> None:
    evil = "ERROR <script>alert(1)</script> \x1b[31m ](https://evil.example) @all | `x`"
    extra = {0: {20: [(evil, "ERROR")]}}
    found = compare(str(job(tmp_path / "a", 1)), str(job(tmp_path / "b", 2, extra=extra)))
    assert any("alert(1)" in line["text"] for line in found["lines"])
    assert "<script>alert" not in render(found, "html")
    assert "\x1b" not in "".join(render(found, form) for form in FORMS)
    outside = re.sub(r"```.*?```", "", render(found, "md"), flags=re.S)
    assert "@all" not in outside and "<script" not in outside


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_the_page_reads_in_a_browser(tmp_path: Path, browser: Browser, width: int, scheme: Any) -> None:
    """Its style is let in by its own policy, nothing is fetched, and nothing is wider than the screen."""
    extra = {3: {120: [("falling back to the slow kernel " + "/very/long/name" * 20, "WARNING")]}}
    a, b = job(tmp_path / "a", 1), job(tmp_path / "b", 2, torch="2.6.0", extra=extra)
    (tmp_path / "d.html").write_text(render(compare(str(a), str(b)), "html"))
    view = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme).new_page()
    trouble: list[str] = []
    asked: list[str] = []
    view.on("console", lambda message: trouble.append(message.text))
    view.on("pageerror", lambda error: trouble.append(str(error)))
    view.on("request", lambda request: asked.append(request.url))
    view.goto((tmp_path / "d.html").as_uri())
    assert trouble == [] and len(asked) == 1
    assert view.locator("h1").inner_text().startswith("B has torch 2.6.0 where A has 2.5.1")
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    assert view.evaluate("getComputedStyle(document.querySelector('.badge')).borderRadius") == "5px"
    assert view.locator("#only-b figure").count() == 1


def test_the_cause_is_in_a_short_title_and_shown_once(in_process: Command) -> None:
    a, b = (SAMPLES / name / "logs" for name in ("healthy-torchrun", "swapped-collectives"))
    cause = "Rank 1 was in a different collective than the others at 13:19:05 UTC on 2026-11-21"
    for form in ("terminal", "md"):
        shown = " ".join(in_process("diff", a, b, "--format", form).stdout.split())
        assert shown.count(f"B failed where A ended well: {cause}. Ranks 0, 2 and 3 waited in") == 1
        assert shown.count(cause) == 1 and shown.count("rank 1 waited in broadcast") == 1
