"""`postmortem watch`: round after round, what is new, whether anybody is at work, and what is said of it.

    execute(["postmortem-runs/20261123-070512-x7k2"], Wishes())   ->   the exit code

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from postmortem import blocks as parsers
from postmortem.errors import PostmortemError, UsageError
from postmortem.library import load
from postmortem.live.run.record import JOURNAL, make
from postmortem.live.watch import life, stacks, state
from postmortem.live.watch.follow import Follower
from postmortem.live.watch.life import Look
from postmortem.live.watch.ours import Ours, newest
from postmortem.live.watch.rhythm import Judge, Rhythm, Settings
from postmortem.live.watch.show import Screen, span
from postmortem.live.watch.state import Board
from postmortem.report.text import plural

HANG = 10  # the exit code of `analyze --exit-code` for an incident
FOLDER = "postmortem-watch"
ROUND_S = 1.0
GONE_S = 10.0  # without a rank and without a line: between two attempts of torchrun there are none either
LEFT_S = 10.0  # for a command of --on-hang that still runs at the end


@dataclass(frozen=True)
class Wishes:
    """What the command line asks for."""

    settings: Settings = Settings()
    interval: float = 30.0
    form: str = "text"
    once: bool = False
    exit_code: bool = False
    analyze: bool = False
    on_hang: tuple[str, ...] = ()
    folder: Path | None = None
    job: str = ""


def command_of(text: str | None) -> tuple[str, ...]:
    """The words of --on-hang; no shell ever sees them."""
    try:
        words = tuple(shlex.split(text or ""))
    except ValueError as error:
        raise UsageError(f"--on-hang {text}: {error}", "close the quotation") from None
    if text is not None and not words:
        raise UsageError("--on-hang names no command", "write --on-hang 'scancel 4711'")
    return words


def execute(paths: Sequence[str], wishes: Wishes) -> int:
    """Watch until the job ends, or a hang does where that is asked for."""
    if not sys.platform.startswith("linux"):
        raise UsageError("`postmortem watch` works on Linux only", "try: postmortem analyze LOGS")
    if any("://" in path or path == "-" for path in paths):
        raise UsageError("`postmortem watch` follows files of this machine", "name their folder")
    watch = Watch(paths, wishes)
    try:
        return watch.run()
    finally:
        watch.close()


@dataclass
class Watch:
    """One job being watched."""

    paths: Sequence[str]
    wishes: Wishes
    folder: Path | None = None  # the latest standstill's
    hangs: int = 0  # folders of evidence
    named: int = 0
    _base: Path | None = None
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.library = load()
        parsers.engine(self.library)
        stacks.ready()
        self.follower = Follower(self.paths)
        self.screen = Screen(self.wishes.form, self.wishes.interval)
        self.board = Board(self.library)
        self.ours = Ours(self.wishes.job)
        self.rhythm = Rhythm(self.wishes.settings)
        self.judge: Judge[Look] = Judge(self.rhythm, self._look, life.compare, life.phase)

    # ── rounds ──────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> int:
        self._first()
        while True:
            now, _ = state.clock()
            moved = self._read(now)
            self._ranks(now)
            resumed = moved and self.judge.state == "still"
            silent = now - self.judge.last
            self.judge.tick(now, moved, self.board.phase())
            if resumed:
                self._resumed(silent)
            self._show(now)
            if why := self._ended(now):
                return self._end(why)
            if self.judge.state == "still" and self.folder is None:
                hangs = self._hang(now)
                if hangs and self.wishes.exit_code:
                    return HANG
            if self.wishes.once and self.judge.state not in ("quiet", "alive"):
                return 0
            if self.wishes.once and self.judge.sign:
                return 0
            self._running = [child for child in self._running if child.poll() is None]
            time.sleep(ROUND_S)

    def _first(self) -> None:
        """What was there before: its rhythm, and how long it has been silent."""
        now, wall = state.clock()
        files = self.follower.known
        self.ours.look(files, (), newest(files), now, soon=True)
        self.board.owners = self.ours.owners(files)
        changed = 0.0
        for piece in self.follower.new():
            state.learn(self.rhythm, piece)
            self.board.read(piece, now, wall)
            if piece.source.kind != "run":
                changed = max(changed, piece.changed)
        self.rhythm.begun = self.board.steps
        self.judge.begin(now - max(0.0, wall - changed) if changed else now, self.board.phase())

    def _read(self, now: float) -> bool:
        _, wall = state.clock()
        moved = False
        for piece in self.follower.new():
            moved |= self.board.read(piece, now, wall)
        self.rhythm.begun = self.board.steps
        return moved

    def _ranks(self, now: float, soon: bool = False) -> None:
        files = self.follower.known
        self.ours.look(files, self.board.pids, newest(files), now, soon)
        self.board.owners |= self.ours.owners(files)
        living = {r.number: r.pid for r in self.ours.found}
        for number, pid in living.items():
            self.board.of_rank(number).pid = pid
        for row in self.board.rows.values():
            row.gone = row.pid is not None and row.rank not in living

    def _look(self) -> Look:
        return life.look(self.ours.found, self.library)

    def _ended(self, now: float) -> str:
        """Why there is nothing more to watch; empty where there is."""
        silent = now - self.judge.last
        if self.board.ended:
            return self.board.ended
        if self.ours.gone_at is not None and now - self.ours.gone_at >= GONE_S and silent >= GONE_S:
            done = bool(self.board.rows) and all(r.finished for r in self.board.rows.values() if r.line)
            return "all ranks have ended, and said that they were done" if done else "all ranks have ended"
        if self.board.phase() == state.END and silent >= self.judge.patience():
            left = f", and {len(self.ours.found)} processes are left" if self.ours.found else ""
            return f"all ranks said that they were done{left}"
        return ""

    # ── what is said ────────────────────────────────────────────────────────────────────────────────────────

    def _show(self, now: float) -> None:
        quiet, patience = now - self.judge.last, self.judge.patience()
        what = {
            "moving": f"moving, {span(quiet)} since the last progress",
            "quiet": f"quiet for {span(quiet)}, longer than {span(patience)}: looking",
            "alive": f"quiet for {span(quiet)}, but {self.judge.sign.why if self.judge.sign else 'alive'}",
            "still": f"STANDS STILL for {span(quiet)}",
        }[self.judge.state]
        phase = f", {self.judge.phase}" if self.judge.phase else ""
        here = f"{plural(len(self.ours.found), 'rank')} on this host"
        if self.ours.several and not self.ours.found:
            here = "several jobs on this host: name one with --job"
        facts: dict[str, Any] = {
            "state": self.judge.state,
            "phase": self.judge.phase or None,
            "quiet_s": round(quiet, 1),
            "patience_s": round(patience, 1),
            "ranks_here": len(self.ours.found),
        }
        rows = list(self.board.rows.values())
        self.screen.round(rows, now, f"{what}{phase} ({here})", facts, force=self.wishes.once)

    def _hang(self, now: float) -> bool:
        """Save where the ranks stand, have it judged, and say it. Whether it is a failure at all."""
        began = time.monotonic()
        self._ranks(now, soon=True)
        self.hangs += 1
        folder = self._place() / f"standstill-{self.hangs}"
        latest = max(self.board.rows.values(), key=lambda r: r.line_at or 0.0, default=None)
        still = stacks.Standstill(
            now - self.judge.last, self.rhythm.usual, latest.line if latest else "", self.board.world
        )
        try:
            lacking = stacks.take(folder, self.ours.found, still)
        except OSError as error:
            raise PostmortemError(
                f"could not write to {folder}: {error.strerror}",
                "name a folder with --folder DIR",
            ) from None
        self.folder = folder
        saved = time.monotonic() - began
        document = stacks.judge(self.paths, folder, folder)
        self._say(still, lacking, document, (saved, time.monotonic() - began))
        with suppress(OSError):
            self._running.append(stacks.page(self.paths, folder, folder))
        if document is not None and document["verdict"]["outcome"] in ("healthy", "recovered"):
            return False
        self.named += 1
        self._call(folder)
        return True

    def _say(
        self,
        still: stacks.Standstill,
        lacking: Sequence[str],
        found: dict[str, Any] | None,
        took: tuple[float, float],
    ) -> None:
        verdict = found["verdict"] if found else {}
        name = "QUIET" if verdict.get("outcome") in ("healthy", "recovered") else "HANG"
        headline = verdict.get("headline") or "what it waits for is not known: the analysis did not end"
        groups = [_group(row) for row in (found or {}).get("stacks", ())]
        usual = f" (usual: {span(still.usual)})" if still.usual >= 1 else ""
        told = [
            f"{name}: no rank made progress for {span(still.quiet)}{usual}",
            f"  {headline}",
            *(f"  {text}" for text in groups[:8]),
            *(f"  {text}" for text in lacking[:8]),
            f"  evidence and report in {self.folder} after {took[1]:.1f} s",
        ]
        facts = {
            "quiet_s": round(still.quiet, 1),
            "stacks_after_s": round(took[0], 2),
            "took_s": round(took[1], 2),
            "headline": headline,
            "category": verdict.get("category"),
            "outcome": verdict.get("outcome"),
            "ranks": verdict.get("culprit", {}).get("ranks"),
            "stacks": groups,
            "lacking": list(lacking),
            "folder": str(self.folder),
        }
        self.screen.tell(name.lower(), facts, "\n".join(told))

    def _resumed(self, silent: float) -> None:
        if self.folder is not None:  # before it is said: who hears of it may end us
            stacks.forget(self.folder)
        self.folder = None
        self.screen.tell("resumed", {"after_s": round(silent, 1)}, f"it moves again, after {span(silent)}")

    def _end(self, why: str) -> int:
        named = f"; hangs named: {self.named}" if self.named else ""
        self.screen.tell("end", {"outcome": why, "hangs": self.named}, f"{why}{named}")
        if self.wishes.analyze:
            self.screen.close()
            stacks.report(self.paths, self.folder, self._place())
        elif self.wishes.form == "text":
            named_paths = " ".join(map(shlex.quote, (*self.paths, *([str(self.folder)] if self.folder else ()))))
            self.screen.tell("next", {}, f"  next: postmortem analyze {named_paths}")
        return 0

    # ── places and programs ─────────────────────────────────────────────────────────────────────────────────

    def _place(self) -> Path:
        """Where evidence is kept: in a run's own folder, so that its analysis finds it, else in a new one."""
        if self._base is None:
            only = Path(self.paths[0]).resolve() if len(self.paths) == 1 else None
            if self.wishes.folder is not None:
                self._base = self.wishes.folder.resolve()
                with suppress(OSError):
                    self._base.mkdir(parents=True, exist_ok=True, mode=0o700)
            elif only is not None and (only / JOURNAL).is_file() and os.access(only, os.W_OK):
                self._base = only
                for earlier in only.glob("standstill-*"):  # of a watch before this one
                    stacks.forget(earlier)
            else:
                self._base = make(Path(FOLDER))
            if self._base is None:
                raise PostmortemError("no folder for the evidence", "name one with --folder DIR")
            while (self._base / f"standstill-{self.hangs or 1}").exists():
                self.hangs += 1
            self.follower.leave.append(self._base)
        return self._base

    def _call(self, folder: Path) -> None:
        """The user's command. It gets no text of a log, but the names of files."""
        if not self.wishes.on_hang:
            return
        env = os.environ | {
            "POSTMORTEM_FOLDER": str(folder),
            "POSTMORTEM_VERDICT": str(folder / stacks.VERDICT),
            "POSTMORTEM_REPORT": str(folder / stacks.REPORT),
        }
        try:
            child = subprocess.Popen(
                self.wishes.on_hang, env=env, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True
            )
            self._running.append(child)
        except OSError as error:
            self.screen.tell(
                "on-hang",
                {"error": str(error.strerror)},
                f"--on-hang {self.wishes.on_hang[0]}: {error.strerror}",
            )

    def close(self) -> None:
        """Give a command that still runs a moment, and leave it to itself."""
        self.screen.close()
        until = time.monotonic() + LEFT_S
        for child in self._running:
            with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                child.wait(max(0.0, until - time.monotonic()))
            child.returncode = child.returncode or 0  # no warning that it is left running


def _group(row: dict[str, Any]) -> str:
    """`ranks 0, 2: all_reduce (train.py:43)`"""
    from postmortem.diagnose.wording import ranks_text

    who = ranks_text(row["ranks"]) if row["ranks"] else f"{row['count']} processes"
    frame = next((f for f in row["frames"] if f["own"]), None)
    at = f"{frame['function']} " if frame else ""
    where = f"{at}({row['code']})" if row["code"] else at.strip()
    return f"{who}: {', '.join(filter(None, [where, row['collective'] or '']))}"
