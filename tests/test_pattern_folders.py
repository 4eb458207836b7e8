"""Pattern folders are input: each file is a pattern, or leads to one sentence that names file and key."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from conftest import table
from postmortem.analyze import Options, analyze
from postmortem.cli.app import run
from postmortem.errors import PatternError
from postmortem.library import files, load, parse, shipped
from postmortem.library import read as read_library

OWN = """\
id: queue-stalled
title: The queue stalled
role: cause
severity: error
regex: 'QUEUE STALLED (?P<n>\\d+)'
what: x
examples:
  match: [{text: 'QUEUE STALLED 5', captures: {n: '5'}}]
"""
LOG = (
    "2026-11-20 21:01:43,548 INFO [rank0] step 1 loss 2\n"
    f"QUEUE STALLED {'a' * 60}b\n"
    'Traceback (most recent call last):\n  File "a.py", line 3, in f\n'
    f"MyError: {'a' * 60}b\n"
    "2026-11-20 21:01:44,548 INFO [rank0] training finished\n"
)


def folder(tmp_path: Path, text: str = OWN) -> Path:
    made = tmp_path / "own"
    made.mkdir()
    (made / "x.yaml").write_text(text)
    return made


def refused(path: Path) -> str:
    """Return the one sentence about the folder, which must come at once."""
    start = time.monotonic()
    with pytest.raises(PatternError) as error:
        for file, data in files.found(path):
            parse(data, file)
    assert time.monotonic() - start < 5
    assert error.value.message.startswith(f"{path / 'x.yaml'}:") and "\n" not in error.value.message
    return error.value.message.partition(":")[2]


def test_wrong_type_is_named_with_its_key(tmp_path: Path) -> None:
    own = folder(tmp_path)
    long = (OWN.splitlines()[4], f"regex: '{'a|' * 2000}b'", "`regex` is longer than 2,000 characters")
    for old, new, message in (*table("pattern_folders")["wrong"], long):
        (own / "x.yaml").write_text(OWN.replace(old, new))
        assert message in refused(own)


def test_references_and_other_documents_are_refused_in_every_encoding(tmp_path: Path) -> None:
    own = folder(tmp_path)
    for text in ("why: &a y\n", "why: *a\n", "sources: [&a x]\n", "tells: [x,*a]\n", "&a why: y\n"):
        for encoding in ("utf-8", "utf-8-sig", "utf-16"):
            (own / "x.yaml").write_bytes((text + OWN).encode(encoding))
            assert "anchors and aliases are not allowed" in refused(own)
    for text in ("[a, [b]]\n", "[{a: b, c: d}]\n", "words\n", "", "? [a]\n: b\n", "{[a]: b}\n", "!!set {a, b}\n"):
        (own / "x.yaml").write_text(text)
        assert refused(own)


def test_other_kinds_of_files_are_refused(tmp_path: Path) -> None:
    for name in ("fifo", "folder", "large", "link", "circle", "nothing"):
        (tmp_path / name).mkdir()
    (tmp_path / "secret.txt").write_text("password: hunter2: x\n")
    os.mkfifo(tmp_path / "fifo" / "x.yaml")
    (tmp_path / "folder" / "x.yaml").mkdir()
    with (tmp_path / "large" / "x.yaml").open("wb") as file:
        file.truncate(40 << 30)
    (tmp_path / "link" / "x.yaml").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "circle" / "x.yaml").symlink_to("x.yaml")
    (tmp_path / "nothing" / "x.yaml").symlink_to("y.yaml")
    assert "no regular file" in refused(tmp_path / "fifo")
    assert "cannot be read: Is a directory" in refused(tmp_path / "folder")
    assert "larger than 1 MiB" in refused(tmp_path / "large")
    assert "a link out of its folder" in (message := refused(tmp_path / "link")) and "hunter2" not in message
    assert "cannot be read" in refused(tmp_path / "circle")
    assert "cannot be read: No such file" in refused(tmp_path / "nothing")


def test_number_of_files_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_FILES", 1)
    own = folder(tmp_path)
    assert len(list(files.found(own))) == 1
    (own / "y.yaml").write_text(OWN)
    with pytest.raises(PatternError, match="more than 1 pattern files"):
        list(files.found(own))


def test_a_mounted_config_map_is_a_folder_of_links(tmp_path: Path) -> None:
    """Kubernetes mounts `x.yaml -> ..data/x.yaml` and `..data -> ..2026_11_20`."""
    (tmp_path / "..2026_11_20").mkdir()
    (tmp_path / "..2026_11_20" / "x.yaml").write_text(OWN)
    (tmp_path / "..data").symlink_to("..2026_11_20")
    (tmp_path / "x.yaml").symlink_to("..data/x.yaml")
    assert load(tmp_path)["queue-stalled"].title == "The queue stalled"


ENDLESS = {
    "derived gate": "regex: 'QUEUE STALLED (?:a|a)*$'",
    "own gate": "regex: '(?:a|a)*$'\ngate: 'QUEUE STALLED'",
    "exception": "regex: 'MyError: (?:a|a)*$'\non: exception",
}


@pytest.mark.release
@pytest.mark.parametrize("name", ENDLESS)
def test_regex_that_does_not_end_on_a_short_line(name: str, tmp_path: Path) -> None:
    own = folder(tmp_path, OWN.replace("regex: 'QUEUE STALLED (?P<n>\\d+)'", ENDLESS[name]))
    logs = tmp_path / "logs"
    logs.mkdir()
    for rank in range(5):
        (logs / f"rank{rank}.log").write_text(LOG.replace("rank0", f"rank{rank}"))
    start = time.process_time()
    document = analyze([str(logs)], Options(patterns=(own,), workers=1)).document
    assert time.process_time() - start < 20, "three lines pay for it, and not each"
    rows = [row for row in document["ledger"]["skipped"] if row.get("lost")]
    assert len(rows) == 5 and all("regex of pattern queue-stalled took too long" in r["reason"] for r in rows)
    assert document["verdict"]["outcome"] != "healthy"


@pytest.mark.slow
def test_every_command_reports_it_in_one_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    own = folder(tmp_path, OWN.replace("role: cause", 'role: "\\e[31m\\e]0;pwned\\a"'))
    for words in (["patterns", "lint"], ["patterns", "list"], ["analyze", "."]):
        code = run([*words, "--patterns", str(own)])
        out, err = capfd.readouterr()
        assert code in (1, 2) and "Traceback" not in out + err and "x.yaml" in out + err
        assert "\x1b" not in err and "\x07" not in err


def aged(path: Path) -> Path:
    """Return the folder when its files are old enough to have a stamp."""
    start = time.time()
    while files.stamp(path) is None and time.time() < start + 3 * files.SETTLED:
        time.sleep(0.1)
    return path


def fresh(path: Path) -> list[str]:
    """Return the titles that a new process would read."""
    read_library._load.cache_clear()
    return [p.title for p in load(path).patterns.values() if not shipped(p)]


@pytest.mark.slow
def test_second_start_opens_no_pattern_file_and_sees_a_changed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own = aged(folder(tmp_path))
    assert fresh(own) == ["The queue stalled"]
    with monkeypatch.context() as closed:
        closed.setattr(files, "_content", lambda *_: pytest.fail("a pattern file was opened"))
        assert fresh(own) == ["The queue stalled"]
    before = (own / "x.yaml").stat()
    (own / "x.yaml").write_text(OWN.replace("stalled", "starved", 1).replace("queue stalled", "queue starved"))
    os.utime(own / "x.yaml", ns=(before.st_atime_ns, before.st_mtime_ns))  # same size, same time
    assert (own / "x.yaml").stat().st_size == before.st_size
    assert fresh(own) == ["The queue starved"]
    read_library._load.cache_clear()


def test_new_files_and_links_have_no_stamp(tmp_path: Path) -> None:
    own = folder(tmp_path)
    assert files.stamp(own) is None, "it may change again within the same tick"
    assert files.stamp(aged(own))
    (own / "y.yaml").symlink_to(own / "x.yaml")
    assert files.stamp(own) is None, "its target may change"
    assert files.stamp(tmp_path / "nothing") is None


def test_the_users_own_folder_is_read_where_no_other_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    own, other = tmp_path / "config" / "postmortem" / "patterns", tmp_path / "other"
    own.mkdir(parents=True)
    other.mkdir()
    assert run(["patterns", "list"]) == 0  # an empty folder is as good as none
    (own / "queue-stalled.yaml").write_text(OWN)
    assert run(["explain", "queue-stalled"]) == 0
    (other / "else.yaml").write_text(OWN.replace("queue-stalled", "something-else"))
    assert run(["explain", "queue-stalled", "--patterns", str(other)]) == 2
    assert "queue-stalled" in capfd.readouterr().err
