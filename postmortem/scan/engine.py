r"""Signatures -> an engine that finds their gates in bytes, and their regexes on a line.

    Engine.compile(load().signatures()).find(b"ok\nKilled process 12 (python)\n")  ->  [(17 << 16) | 0]

Two automata give the same answers: Hyperscan (one pass over a whole block) and RE2's Set (line by line, about
a third of the speed), for machines where Hyperscan has no wheel or the processor lacks AVX2.
"""

from __future__ import annotations

import hashlib
import platform
import re
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, Protocol

import regex

from postmortem.errors import PatternError
from postmortem.library import Signature
from postmortem.library.regexes import PATIENCE
from postmortem.scan.gates import HINT, SHOWN, gate_of, is_exact, name_of
from postmortem.scan.reader import LineCounter
from postmortem.system import cache as disk

SHIFT = 16  # a gate's hit is `end offset << SHIFT | number of the signature`
NUMBER = (1 << SHIFT) - 1
LONG = 2048  # below this no polynomial regex of ours hurts, and a timeout would cost four times the search
TIRED = 3  # sources in which a regex did not end: it is asked no more
KEPT = 16  # engines of a thread; an analysis takes twelve
Bytes = bytes | memoryview


class Automaton(Protocol):
    """Finds gates: sorted keys without duplicates. An end is the offset of a byte on the gate's line, or its end."""

    def find(self, text: Bytes) -> list[int]: ...


class Engine:
    """Compiled gates and, compiled at first use, their regexes. Each process and thread needs its own."""

    def __init__(self, signatures: Sequence[Signature], automaton: Automaton, name: str) -> None:
        self.signatures = tuple(signatures)
        self.name = name
        # id -> bytes before and after, the most of its variants
        self.reach: dict[str, tuple[int, int]] = {}
        for s in self.signatures:
            before, after = self.reach.get(s.id, (0, 0))
            self.reach[s.id] = max(s.before, before), max(s.after, after)
        self.before = max((before for before, _ in self.reach.values()), default=0)
        self.after = max((after for _, after in self.reach.values()), default=0)
        self.exact = [is_exact(s) for s in self.signatures]
        self.find = automaton.find
        self.counter = LineCounter()  # of all sources that are scanned with this engine
        self.foreign = [bool(s.path) for s in self.signatures]
        self.tired: Counter[str] = Counter()  # ids: in how many sources their regexes did not end
        self._regexes: dict[int, regex.Pattern[bytes]] = {}
        self._short: dict[int, Any] = {}

    @classmethod
    def compile(cls, signatures: Sequence[Signature], *, prefer: str = "auto", cache: bool = True) -> Engine:
        """Compile the gates with "hyperscan", "re2", or the better one that runs here ("auto"). `cache`: on disk."""
        if len(signatures) >= 1 << SHIFT:
            raise PatternError(f"{len(signatures)} signatures are more than a scan can tell apart ({(1 << SHIFT) - 1})")
        gates = _gates(signatures) if cache else [gate_of(s) for s in signatures]
        if not gates:
            return cls(signatures, _Nothing(), "nothing")
        if prefer == "hyperscan" or (prefer == "auto" and _hyperscan_runs_here()):
            return cls(signatures, _Hyperscan(signatures, gates, cache), "hyperscan")
        return cls(signatures, _RE2(signatures, gates), "re2")

    def compiled(self, number: int) -> regex.Pattern[bytes]:
        """Return the regex of signature `number`; an opener's gate is its regex."""
        known = self._regexes.get(number)
        if known is None:
            signature = self.signatures[number]
            source = gate_of(signature) if signature.regex is None else signature.regex.encode()
            try:
                known = self._regexes[number] = regex.compile(source)
            except regex.error as e:
                raise PatternError(f"{name_of(signature)}: the regex `{signature.regex}` is not valid: {e}") from None
        return known

    def _for_short_lines(self, number: int) -> Any:
        """Return the same as a pattern of `re`, which compiles it in a third of the time; a few it does not know."""
        regex_of = self.signatures[number].regex
        try:
            found = re.compile(regex_of.encode()) if regex_of else self.compiled(number)
        except re.error:
            found = self.compiled(number)
        self._short[number] = found
        return found

    def search(self, number: int, text: bytes, start: int = 0) -> Any:
        """Search a cleaned part of a line. Raise TimeoutError where a long line, or a user's regex, takes too long."""
        if len(text) < LONG and not self.foreign[number]:
            return (self._short.get(number) or self._for_short_lines(number)).search(text, start)
        return self.compiled(number).search(text, start, timeout=PATIENCE)


_OWN = threading.local()


def own_engine(key: Hashable, signatures: Callable[[], Sequence[Signature]], *, prefer: str = "auto") -> Engine:
    """Return this thread's engine for `key`; two threads cannot share an engine's scratch memory.
    For single lines `prefer` RE2: it compiles in 3 ms, Hyperscan in half a second, and is as fast."""
    engines: dict[Hashable, Engine] = _OWN.__dict__.setdefault("engines", {})
    engine = engines.pop(key, None) or Engine.compile(signatures(), prefer=prefer)
    engines[key] = engine
    if len(engines) > KEPT:
        del engines[next(iter(engines))]
    return engine


def _gates(signatures: Sequence[Signature]) -> list[bytes]:
    """Return the gates of many signatures; derived once, then read from disk."""
    if len(signatures) < 16:
        return [gate_of(s) for s in signatures]
    asked = "\0".join(f"{s.gate}\0{s.regex == s.gate}" for s in signatures)
    content = hashlib.sha256(asked.encode("utf-8", "surrogatepass"))
    path = disk.named("gates", content, "scan/gates.py", "scan/gates.yaml")
    try:
        gates = [str(row).encode("latin-1") for row in disk.fetch_rows(path) or ()]
        if len(gates) == len(signatures):
            return gates
    except UnicodeError:
        pass
    gates = [gate_of(s) for s in signatures]
    disk.store_rows(path, [gate.decode("latin-1") for gate in gates])
    return gates


class _Nothing:
    def find(self, text: Bytes) -> list[int]:
        return []


class _Hyperscan:
    """Block mode: one call for a megabyte of whole lines."""

    def __init__(self, signatures: Sequence[Signature], gates: list[bytes], cache: bool) -> None:
        import hyperscan

        self._flags = hyperscan.HS_FLAG_MULTILINE
        path = _cache_path(gates)
        self._db: Any = _load(path) if cache else None
        if self._db is None:
            self._db = self._compile(signatures, gates)
            if cache:
                disk.store(path, hyperscan.dumpb(self._db))

    def _compile(self, signatures: Sequence[Signature], gates: list[bytes]) -> Any:
        import hyperscan

        db: Any = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        try:
            db.compile(expressions=gates, ids=list(range(len(gates))), flags=self._flags)
        except hyperscan.error as e:
            for signature, gate in zip(signatures, gates, strict=True):
                _try_alone(signature, gate, self._flags)
            raise PatternError(f"Hyperscan refuses the patterns together: {e}") from None
        return db

    def find(self, text: Bytes) -> list[int]:
        found: list[int] = []
        self._db.scan(text, match_event_handler=_note, context=found)
        # they come almost sorted, and a set would shuffle them
        return sorted(dict.fromkeys(found)) if len(found) > 1 else found


def _note(number: int, _start: int, end: int, _flags: int, found: list[int]) -> None:
    """Hyperscan's callback. It must return None: anything true ends the scan."""
    found.append(end << SHIFT | number)


def _try_alone(signature: Signature, gate: bytes, flags: int) -> None:
    import hyperscan

    try:
        hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK).compile(expressions=[gate], ids=[0], flags=flags)
    except hyperscan.error as e:
        raise PatternError(
            f"{name_of(signature)}: Hyperscan refuses the gate `{gate.decode()[:SHOWN]}`: {e}", HINT
        ) from None


def _hyperscan_runs_here() -> bool:
    """Return whether `import hyperscan` works. Without AVX2 its wheel dies of SIGILL on import."""
    if platform.machine().lower() in ("x86_64", "amd64") and "avx2" not in _cpu_flags().split():
        return not Path("/proc/cpuinfo").exists()
    try:
        import hyperscan  # noqa: F401
    except ImportError:
        return False
    return True


def _cpu_flags() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="ascii", errors="replace") as f:
            head = f.read(16 << 10)
    except OSError:
        return ""
    rows = (line.partition(":") for line in head.splitlines())
    return next((flags.strip() for name, _, flags in rows if name.strip() in ("flags", "Features")), "")


# ── the compiled database on disk: compiling takes 0.5 s, loading 1 ms ──────────────────────────────────────


def _cache_path(gates: list[bytes]) -> Path:
    import hyperscan

    release = getattr(hyperscan, "__version__", "")
    made_by = f"{release} {platform.machine()} {platform.system()} {_cpu_flags()}"
    key = hashlib.sha256(made_by.encode())
    for gate in gates:
        key.update(b"\0" + gate)
    return disk.named("hsdb", key)


def _load(path: Path) -> Any:
    """Return the cached database, or None. Hyperscan would load a damaged one silently; the cache's digest
    prevents that."""
    import hyperscan

    body = disk.fetch(path)
    if body is None:
        return None
    try:
        db: Any = hyperscan.loadb(body, mode=hyperscan.HS_MODE_BLOCK)
        db.scratch = hyperscan.Scratch(db)  # a loaded database has none, and refuses to scan
    except (ValueError, hyperscan.error):
        return None
    return db


# ── RE2 ─────────────────────────────────────────────────────────────────────────────────────────────────────


class _RE2:
    """A set of gates, for one line at a time. Latin-1, so that each byte is one character, as for Hyperscan."""

    def __init__(self, signatures: Sequence[Signature], gates: list[bytes]) -> None:
        import re2

        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1
        # the default of 8 MiB is too small for 100 gates: the set would find nothing
        options.max_mem = 128 << 20
        options.log_errors = False
        self._set = re2.Set.SearchSet(options)
        for signature, gate in zip(signatures, gates, strict=True):
            try:
                self._set.Add(gate)
            except re2.error as e:
                raise PatternError(
                    f"{name_of(signature)}: RE2 refuses the gate `{gate.decode()[:SHOWN]}`: {e}", HINT
                ) from None
        self._set.Compile()
        for number in self._set.Match(b"") or ():
            raise PatternError(
                (f"{name_of(signatures[number])}: the gate `{gates[number].decode()[:SHOWN]}` matches the empty text"),
                HINT,
            )

    def find(self, text: Bytes) -> list[int]:
        found = []
        match = self._set.Match
        end = -1
        for line in bytes(text).split(b"\n"):
            end += len(line) + 1
            if line:
                found += [end << SHIFT | number for number in match(line) or ()]
        return sorted(found)
