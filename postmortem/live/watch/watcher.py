"""`postmortem watch`: rounds in which new lines are read, activity is looked for, and the state is shown.

    execute(["postmortem-runs/20261123-070512-x7k2"], Options())   ->   the exit code

One process, no thread, no file that stays open; it changes nothing of the job.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postmortem import blocks
from postmortem.blocks.signs import has_error
from postmortem.errors import PostmortemError, UsageError
from postmortem.formats.lineform import gist
from postmortem.library import load
from postmortem.live.run.journal import JOURNAL, make_folder
from postmortem.live.watch import activity, board, hang_folder
from postmortem.live.watch.activity import LocalRanks, Look
from postmortem.live.watch.board import Board, Screen, span
from postmortem.live.watch.follow import Follower
from postmortem.live.watch.rhythm import Judge, Rhythm, Settings

HANG = 10  # the exit code of `analyze --exit-code` for an incident
FOLDER = "postmortem-watch"
ROUND_S = 1.0
GONE_S = 10.0  # without a rank and without a line: between two attempts of torchrun there are none either
LEFT_S = 10.0  # for a command of --on-hang that still runs at the end
HARMLESS = ("healthy", "recovered")


@dataclass(frozen=True)
class Options:
    """The options of the command line."""

    settings: Settings = Settings()
    interval: float = 30.0
    form: str = "text"
    once: bool = False
    exit_code: bool = False
    analyze: bool = False
    on_hang: tuple[str, ...] = ()
    folder: Path | None = None
    job: str = ""


def command_words(text: str | None) -> tuple[str, ...]:
    """Return the words of --on-hang, which no shell interprets."""
    try:
        words = tuple(shlex.split(text or ""))
    except ValueError as error:
        raise UsageError(f"--on-hang {text}: {error}", "close the quote") from None
    if text is not None and not words:
        raise UsageError("--on-hang names no command", "write --on-hang 'scancel 4711'")
    return words


def execute(paths: Sequence[str], options: Options) -> int:
    """Watch until the job ends, or with --exit-code until it hangs."""
    if not sys.platform.startswith("linux"):
        raise UsageError("`postmortem watch` works on Linux only", "try: postmortem analyze LOGS")
    if any("://" in path or path == "-" for path in paths):
        raise UsageError("`postmortem watch` follows files of this machine", "name their folder")
    watch = Watch(paths, options)
    try:
        return watch.run()
    finally:
        watch.close()


class Watch:
    """One job being watched."""

    def __init__(self, paths: Sequence[str], options: Options) -> None:
        self.paths, self.options = paths, options
        self.folder: Path | None = None  # of the current hang
        self.hangs = 0  # folders of evidence
        self.reported = 0
        self._base: Path | None = None
        self._running: list[subprocess.Popen[bytes]] = []
        self.library = load()
        blocks.engine(self.library)
        hang_folder.preload()
        self.follower = Follower(paths)
        self.screen = Screen(options.form, options.interval)
        self.board = Board(self.library)
        self.local = LocalRanks(options.job)
        self.rhythm = Rhythm(options.settings)
        self.judge: Judge[Look] = Judge(self.rhythm, self._look, activity.compare, activity.phase)

    def run(self) -> int:
        self._begin()
        while True:
            now = time.monotonic()
            moved = False
            for piece in self.follower.new():
                moved |= self.board.read(piece, now, time.time())
            self.rhythm.begun = self.board.steps
            self._look_for_ranks(now)
            resumed = moved and self.judge.state == "still"
            silent = now - self.judge.last
            self.judge.tick(now, moved, self.board.phase())
            if resumed:
                if self.folder is not None:  # first, since a reader of the event may end us
                    hang_folder.forget(self.folder)
                self.folder = None
                self.screen.show_event(
                    "resumed", {"after_s": round(silent, 1)}, f"it moves again, after {span(silent)}"
                )
            decided = self.judge.state not in ("quiet", "alive") or bool(self.judge.activity)
            why = self._ended(now)
            if decided or why or not self.options.once:
                self._show(now)
            if why:
                self._end(why)
                return 0
            if self.judge.state == "still" and self.folder is None and self._hang(now) and self.options.exit_code:
                return HANG
            if self.options.once and decided:
                return 0
            self._running = [child for child in self._running if child.poll() is None]
            time.sleep(ROUND_S)

    def _begin(self) -> None:
        """Learn the rhythm of the existing lines, and how long the job has been silent."""
        now, wall = time.monotonic(), time.time()
        self._look_for_ranks(now, soon=True)
        changed = 0.0
        for piece in self.follower.new():
            board.learn(self.rhythm, piece)
            self.board.read(piece, now, wall)
            if piece.source.kind != "run":
                changed = max(changed, piece.changed)
        self.rhythm.begun = self.board.steps
        self.judge.begin(now - max(0.0, wall - changed) if changed else now, self.board.phase())

    def _look_for_ranks(self, now: float, soon: bool = False) -> None:
        files = self.follower.known
        self.local.look(files, self.board.pids, now, soon)
        self.board.owners |= self.local.owners(files)
        pids = {r.number: r.pid for r in self.local.found}
        for number, pid in pids.items():
            self.board.of_rank(number).pid = pid
        for row in self.board.rows.values():
            row.gone = row.pid is not None and row.rank not in pids

    def _look(self) -> Look:
        return activity.look(self.local.found, self.library)

    def _ended(self, now: float) -> str:
        """Return why there is nothing more to watch; empty if there is."""
        silent, gone_at = now - self.judge.last, self.local.gone_at
        if self.board.ended:
            return self.board.ended
        if gone_at is not None and now - gone_at >= GONE_S and silent >= GONE_S:
            done = bool(self.board.rows) and all(r.finished for r in self.board.rows.values() if r.line)
            return f"all ranks have ended{', and reported that they were done' if done else ''}"
        if not self.local.found and not self.local.several and self.board.exited and silent >= self.judge.patience():
            return "no process of the job is on this host, and its launcher reported a failure"
        if self.board.phase() == board.END and silent >= self.judge.patience():
            left = f", and {len(self.local.found)} processes are left" if self.local.found else ""
            return f"all ranks reported that they were done{left}"
        return ""

    def _show(self, now: float) -> None:
        judge = self.judge
        quiet, patience = now - judge.last, judge.patience()
        activity = judge.activity.why if judge.activity else "its ranks work"
        state = {
            "moving": f"The job makes progress; the last was {span(quiet)} ago.",
            "quiet": f"The job has been quiet for {span(quiet)}, longer than {span(patience)}; checking its ranks.",
            "alive": f"The job has been quiet for {span(quiet)}, but {activity}.",
            "still": f"The job HANGS: no progress for {span(quiet)}.",
        }[judge.state]
        phase = f" Phase: {judge.phase}." if judge.phase else ""
        if judge.phase == board.END and judge.state != "still":
            state, phase = f"The job reports that it is done; its last progress was {span(quiet)} ago.", ""
        here = f"Ranks on this host: {len(self.local.found)}."
        rows = list(self.board.rows.values())
        if not rows and not self.local.found:
            state, phase, here = (
                f"There are no log lines in {', '.join(self.paths)} yet.",
                "",
                "No rank is on this host.",
            )
        elif self.local.several and not self.local.found:
            here = "Several jobs are on this host; name one with --job."
        elif not self.local.found and any(has_error(gist(row.line)) for row in rows):
            again = f"postmortem analyze {shlex.join(self.paths)}"
            here = f"None of its processes is on this host, and the last lines are errors; run: {again}"
        facts: dict[str, Any] = {
            "state": judge.state,
            "phase": judge.phase or None,
            "quiet_s": round(quiet, 1),
            "patience_s": round(patience, 1),
            "ranks_here": len(self.local.found),
        }
        self.screen.show_round(rows, now, f"{state}{phase} {here}", facts, force=self.options.once)

    def _hang(self, now: float) -> bool:
        """Save the state of the ranks, and show the verdict of `analyze`. Return whether it is a failure."""
        began = time.monotonic()
        self._look_for_ranks(now, soon=True)
        self.hangs += 1
        folder = self._place() / f"standstill-{self.hangs}"
        latest = max(self.board.rows.values(), key=lambda r: r.line_at or 0.0, default=None)
        last_line = latest.line if latest else ""
        hang = hang_folder.Hang(now - self.judge.last, self.rhythm.usual, last_line, self.board.world)
        try:
            lacking = hang_folder.save(folder, self.local.found, hang)
        except OSError as error:
            message = f"could not write to {folder}: {error.strerror}"
            raise PostmortemError(message, "name a folder with --folder DIR") from None
        self.folder = folder
        saved = time.monotonic() - began
        document = hang_folder.judge(self.paths, folder)
        seconds = time.monotonic() - began
        verdict = document["verdict"] if document else {}
        harmless = verdict.get("outcome") in HARMLESS
        headline = verdict.get("headline") or "the analysis did not end, so the cause is not known"
        groups = [_group(row) for row in (document or {}).get("stacks", ())]
        usual = f" (usual: {span(hang.usual)})" if hang.usual >= 1 else ""
        name = "quiet" if harmless else "hang"
        lines = [
            f"{name.upper()}: no rank made progress for {span(hang.quiet)}{usual}",
            *(f"  {text}" for text in (headline, *groups[:8], *lacking[:8])),
            f"  evidence and report in {folder} after {seconds:.1f} s",
        ]
        facts = {
            "quiet_s": round(hang.quiet, 1),
            "stacks_after_s": round(saved, 2),
            "took_s": round(seconds, 2),
            "headline": headline,
            "category": verdict.get("category"),
            "outcome": verdict.get("outcome"),
            "ranks": verdict.get("culprit", {}).get("ranks"),
            "stacks": groups,
            "lacking": lacking,
            "folder": str(folder),
        }
        self.screen.show_event(name, facts, "\n".join(lines))
        with suppress(OSError):
            self._running.append(hang_folder.start_report(self.paths, folder, folder))
        if not harmless:
            self.reported += 1
            self._start_command(folder)
        return not harmless

    def _end(self, why: str) -> None:
        hangs = f"; hangs reported: {self.reported}" if self.reported else ""
        self.screen.show_event("end", {"outcome": why, "hangs": self.reported}, f"{why}{hangs}")
        if self.options.analyze:
            self.screen.close()
            with suppress(OSError, subprocess.SubprocessError):
                hang_folder.start_report(self.paths, self.folder, self._place()).wait(hang_folder.ANALYSIS_S)
        elif self.options.form == "text":
            paths = shlex.join([*self.paths, *([str(self.folder)] if self.folder else [])])
            self.screen.show_event("next", {}, f"  next: postmortem analyze {paths}")

    def _place(self) -> Path:
        """Return the folder for evidence: the folder of a run, where its analysis finds it, else a new one."""
        if self._base is None:
            only = Path(self.paths[0]).resolve() if len(self.paths) == 1 else None
            if self.options.folder is not None:
                self._base = self.options.folder.resolve()
                with suppress(OSError):
                    self._base.mkdir(parents=True, exist_ok=True, mode=0o700)
            elif only is not None and (only / JOURNAL).is_file() and os.access(only, os.W_OK):
                self._base = only
                for earlier in only.glob("standstill-*"):  # of another `watch`
                    hang_folder.forget(earlier)
            else:
                self._base = make_folder(Path(FOLDER))
            if self._base is None:
                raise PostmortemError("no folder for the evidence", "name one with --folder DIR")
            while (self._base / f"standstill-{self.hangs or 1}").exists():
                self.hangs += 1
            self.follower.leave.append(self._base)
        return self._base

    def _start_command(self, folder: Path) -> None:
        """Start the user's command, which gets no text of a log, but the paths of files."""
        if not self.options.on_hang:
            return
        env = os.environ | {
            "POSTMORTEM_FOLDER": str(folder),
            "POSTMORTEM_VERDICT": str(folder / hang_folder.VERDICT),
            "POSTMORTEM_REPORT": str(folder / hang_folder.REPORT),
        }
        words, nothing = self.options.on_hang, subprocess.DEVNULL
        try:
            self._running.append(subprocess.Popen(words, env=env, stdin=nothing, stdout=2, start_new_session=True))
        except OSError as error:
            reason = str(error.strerror)
            self.screen.show_event("on-hang", {"error": reason}, f"--on-hang {words[0]}: {reason}")

    def close(self) -> None:
        """Wait a moment for a command that still runs, and leave it behind."""
        self.screen.close()
        until = time.monotonic() + LEFT_S
        for child in self._running:
            with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                child.wait(max(0.0, until - time.monotonic()))
            child.returncode = child.returncode or 0  # no warning that it is left running


def _group(row: dict[str, Any]) -> str:
    """Return `ranks 0, 2: all_reduce (train.py:43)`."""
    from postmortem.diagnose.wording import ranks_text

    who = ranks_text(row["ranks"]) if row["ranks"] else f"{row['count']} processes"
    frame = next((f for f in row["frames"] if f["own"]), None)
    function, code = frame["function"] if frame else "", f"({row['code']})" if row["code"] else ""
    where = " ".join(filter(None, [function, code]))
    return f"{who}: {', '.join(filter(None, [where, row['collective'] or '']))}"
