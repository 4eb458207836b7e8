"""Each lint finds its defect and names a remedy; `patterns new` writes a skeleton; the commands report both,
and scripts/suggest.py lists loud lines that no pattern recognizes."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import python, table
from postmortem.cli.app import run
from postmortem.errors import UsageError
from postmortem.library import Library, parse, regexes
from postmortem.model import Action, Example, Explains, Pattern, Variant
from postmortem.workshop import lint, trial

GOOD = Pattern(
    id="gpu-went-away",
    family="gpu",
    title="A GPU went away",
    status="stable",
    category="gpu-hardware",
    role="cause",
    severity="fatal",
    entity="gpu",
    what="A GPU went away.",
    why="Nothing else explains it.",
    variants=(Variant(r"GPU (?P<gpu>\d+) went away", gate=r"GPU \d+ went away"),),
    actions=(Action("replace-gpu", "Replace it."),),
    references=("driver.c",),
    matches=(Example("x GPU 3 went away", {"gpu": "3"}),),
    no_matches=(Example("GPU 3 came back", because="the opposite"),),
    path="/patterns/gpu/gpu-went-away.yaml",
)
OTHER = replace(GOOD, id="gpu-came-back", path="/patterns/gpu/gpu-came-back.yaml", variants=(Variant("GPU came back"),))


def names(pattern: Pattern) -> set[str]:
    library = Library({p.id: p for p in (OTHER, pattern)}, "test")
    return {r.lint for r in lint.check(pattern, library)}


def worded(regex: str, gate: str | None = None) -> Pattern:
    return replace(GOOD, variants=(Variant(regex, gate),), matches=(Example("x GPU 3 went away"),))


@pytest.fixture(autouse=True)
def small_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lint, "healthy_corpus", lambda: b"step 12 loss 2.31 throughput 9000\n" * 1000)


BAD = {
    "id-is-the-file-name": replace(GOOD, path="/patterns/gpu/gone.yaml"),
    "folder-is-the-family": replace(GOOD, path="/patterns/gpu-went-away.yaml"),
    "has-what-and-why": replace(GOOD, why=""),
    "cause-has-a-category": replace(GOOD, category=None),
    "cause-has-an-action": replace(GOOD, actions=()),
    "is-survived-by-what-exists": replace(GOOD, survived_by=("work", "gpu-exploded")),
    "explains-what-exists": replace(GOOD, explains=(Explains("gpu-exploded", "same-gpu"),)),
    "replay-exists": replace(GOOD, replay="set-the-rack-on-fire"),
    "examples-both-ways": replace(GOOD, no_matches=()),
    "examples-fit-the-regex": replace(GOOD, matches=(Example("x GPU 3 went away", {"rank": "3"}),)),
    "stable-has-a-source": replace(GOOD, references=()),
    "regex-compiles": worded(r"GPU (?P<gpu>\d+ went away", r"GPU \d+ went away"),
    "regex-is-linear": worded(r"GPU .*, slot .*, went away", r"went away"),
    "gate-compiles": worded(r"(?<=GPU )3 went away"),
    "gate-lets-the-examples-through": worded(r"GPU \d went away", r"GPU \d went far away"),
    "gate-has-a-literal": worded(r"\d went"),
    "gate-is-cheap": worded("throughput"),
    "regex-is-its-own": replace(GOOD, variants=OTHER.variants),
}


def test_each_lint_finds_its_defect_and_names_a_remedy() -> None:
    assert names(GOOD) == set()
    for name, pattern in BAD.items():
        assert name in names(pattern), name
    assert {each.name for each in lint.LINTS} == set(BAD) == set(lint.TEXTS["fix"])


def test_certain_literal_is_in_every_match() -> None:
    for expression, literal in table("patterns_lint")["literals"].items():
        assert regexes.certain_literal(expression) == literal


def test_linear_regexes_differ_from_slower_ones() -> None:
    line = "rank 3, op ALLREDUCE, done"
    assert not regexes.slowest(r"rank (\d+) left \[([^\]]{0,80})\]", [line]).line
    assert not regexes.slowest(r"rank \d+, op \w{1,20}, done", [line]).line
    assert regexes.slowest(r"rank .*, op .*, done", [line]).line


def test_a_slow_machine_does_not_make_a_regex_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are compared with that of a known search, measured at the same moment."""
    rare = "a text so long that few copies of it fit into a line " * 3
    clock = time.thread_time
    monkeypatch.setattr(regexes.time, "thread_time", lambda: 50 * clock())
    monkeypatch.setattr(regexes, "TIMEOUT_S", 60.0)
    assert not regexes.slowest(rf"{rare}[^;]+; gone", [f"{rare}x; gone"]).line
    assert regexes.slowest(r"rank .*, op .*, done", ["rank 3, op ALLREDUCE, done"]).line


def test_new_writes_a_pattern_that_matches_its_line(tmp_path: Path) -> None:
    log = tmp_path / "rank3.log"
    log.write_text("fine\n[rank3]: it's broken: buffer 0x7f3A (of 12) [left]\n")
    path = trial.write("mine/buffer-broken", f"{log}:2", tmp_path)
    pattern = parse(path.read_bytes(), path)
    assert pattern.matches[0].text == "[rank3]: it's broken: buffer 0x7f3A (of 12) [left]"
    assert pattern.matches[0].origin == f"{log}:2"
    assert pattern.variants[0].regex == r"it's broken: buffer 0x[0-9a-fA-F]+ \(of \d+\) \[left\]"
    assert {"has-what-and-why", "examples-both-ways"} <= {r.lint for r in lint.run((tmp_path,))}


def test_new_takes_a_line_as_text_and_spares_an_existing_file(tmp_path: Path) -> None:
    for name, line in (("NoFamily", "x"), ("a/B", "x"), ("../a/b", "x"), ("a/b", "no/such.log:3")):
        with pytest.raises(UsageError):
            trial.write(name, line, tmp_path)
    assert not list(tmp_path.iterdir())
    path = trial.write("mine/cable-unplugged", "ERROR: cable 4 unplugged: 12", tmp_path)
    assert parse(path.read_bytes(), path).variants[0].regex == r"ERROR: cable \d+ unplugged: \d+"
    with pytest.raises(UsageError, match="exists"):
        trial.write("mine/cable-unplugged", "another", tmp_path)


def test_lint_command_goes_on_after_a_file_that_does_not_load(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "broken.yaml").write_text("id: broken\ntitle: [\n")
    trial.write("mine/cable-unplugged", "cable unplugged", tmp_path)
    assert run(["patterns", "lint", "--patterns", str(tmp_path)]) == 1
    out = capfd.readouterr().out
    assert "broken.yaml:" in out and "[loads]" in out
    assert "cable-unplugged.yaml: " in out and "[has-what-and-why]" in out


def test_test_command_names_the_example_that_is_misread(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = trial.write("mine/cable-unplugged", "cable 4 unplugged", tmp_path)
    text = path.read_text().replace("captures: {}", "captures: {cable: '4'}")
    path.write_text(text.replace("no_match: []", "no_match:\n    - {text: cable 5 unplugged}"))
    assert run(["patterns", "test", "cable-unplugged", "--patterns", str(tmp_path)]) == 1
    out = capfd.readouterr().out
    assert f"{path}: a bare draft; " in out  # its only example is the line that it was made of
    assert "mine/cable-unplugged::match[0]: cable is None, not '4'" in out
    assert "mine/cable-unplugged::no_match[0]: is read as this pattern" in out


def test_loud_lines_without_a_pattern_are_grouped_by_shape(tmp_path: Path) -> None:
    lines = [f"flux capacitor {n} failed: voltage {n * 7} is out of bounds" for n in (3, 41)]
    lines += ["step 1 loss 0.5", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."]
    (tmp_path / "rank0.log").write_text("\n".join(lines) + "\n")
    done = python("scripts/suggest.py", tmp_path)
    assert done.returncode == 0, done.stderr
    (row,) = [line for line in done.stdout.splitlines() if "flux capacitor" in line]
    assert row.split()[0] == "2" and "rank0.log:1" in row
    assert "out of memory" not in done.stdout
