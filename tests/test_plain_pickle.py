"""The data-only pickle reader: equal to the standard one on plain data,
deaf to everything else, whatever the bytes."""

from __future__ import annotations

import io
import json
import pickle
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postmortem.blocks.plain_pickle import LIMITS, Limits, PlainPickleError, loads

MARKER = Path("/tmp/postmortem-plain-pickle-executed")
PROTOCOLS = (2, 3, 4, 5)
COLLIDING = (1 << 61) - 1  # CPython hashes integers modulo this prime


def told(value: object) -> str:
    """A value in one spelling, so that equal means equal in type, order and bits:
    1 is not True, 0.0 is not -0.0, NaN is NaN."""
    if isinstance(value, float):
        return struct.pack(">d", value).hex()
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(told, value))})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{told(k)}: {told(v)}" for k, v in value.items()) + "}"
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}({', '.join(sorted(map(told, value)))})"
    return hex(value) if type(value) is int else repr(value)


def same(a: object, b: object) -> bool:
    return told(a) == told(b)


# ── what pickle.dumps writes is what loads reads ────────────────────────────────────────────────────────────

WORDS = st.text(st.characters(exclude_categories=[]), max_size=20)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(1 << 600), 1 << 600) | st.integers(-70000, 70000) | st.floats() | WORDS
)
KEYS = st.recursive(
    SCALARS | st.binary(max_size=9), lambda k: st.tuples(k, k) | st.frozensets(k, max_size=3), max_leaves=4
)
PLAIN = st.recursive(
    SCALARS | st.binary(max_size=300),
    lambda v: st.lists(v) | st.lists(v).map(tuple) | st.dictionaries(KEYS, v) | st.sets(KEYS) | st.frozensets(KEYS),
    max_leaves=25,
)


def written_as_data(value: object, protocol: int) -> bool:
    """Bytes before protocol 3 and sets before 4 are written as calls of a class."""
    if isinstance(value, bytes):
        return protocol >= 3
    if isinstance(value, set | frozenset):
        return protocol >= 4 and all(written_as_data(v, protocol) for v in value)
    if isinstance(value, dict):
        return all(written_as_data(k, protocol) and written_as_data(v, protocol) for k, v in value.items())
    return not isinstance(value, list | tuple) or all(written_as_data(v, protocol) for v in value)


def check_round_trip(value: object) -> int:
    trips = 0
    for protocol in PROTOCOLS:
        data = pickle.dumps(value, protocol)
        if written_as_data(value, protocol):
            assert same(loads(data), value), (protocol, value)
            trips += 1
        else:
            with pytest.raises(PlainPickleError, match="GLOBAL"):
                loads(data)
    return trips


@settings(max_examples=150, deadline=None)
@given(PLAIN)
def test_any_plain_value_survives_every_protocol(value: object) -> None:
    check_round_trip(value)


def test_what_the_short_forms_of_the_opcodes_do_not_cover() -> None:
    shared = ["a list that stands twice"]
    many = [f"text {i}" for i in range(700)]  # more than one BINPUT and one batch of APPENDS hold
    for value in (
        shared,
        [shared, shared],
        {"a": shared, "b": shared},
        many + many,
        dict.fromkeys(many, shared),
        "x" * 70000,
        1 << 8000,
    ):
        check_round_trip(value)
    check_round_trip(b"y" * 70000)


def random_value(r: random.Random, depth: int = 0) -> object:
    kind = r.randrange(8 if depth > 5 else 13)
    if kind < 8:
        return random_scalar(r, kind)
    children = [random_value(r, depth + 1) for _ in range(r.randrange(5))]
    if kind == 8:
        return children
    if kind == 9:
        return tuple(children)
    if kind == 10:
        return {random_key(r): child for child in children}
    keys = [random_key(r) for _ in children]
    return set(keys) if kind == 11 else frozenset(keys)


def random_scalar(r: random.Random, kind: int) -> object:
    if kind == 0:
        return r.choice((None, True, False))
    if kind in (1, 2):
        return r.randrange(-(1 << r.randrange(1, 70)), 1 << r.randrange(1, 70))
    if kind == 3:
        return r.choice((-1, 1)) * (1 << r.randrange(2100)) + r.randrange(-1, 2)
    if kind == 4:
        return struct.unpack(">d", r.randbytes(8))[0] if r.random() < 0.5 else r.uniform(-9, 9)
    if kind == 5:
        return r.randbytes(r.choice((0, 1, 9, 255, 256, 300)))
    top = r.choice((0x7F, 0x7FF, 0xFFFF, 0x10FFFF))  # one to four bytes, surrogates too
    return "".join(chr(r.randrange(top + 1)) for _ in range(r.choice((0, 1, 7, 90, 256))))


def random_key(r: random.Random) -> object:
    key = random_scalar(r, r.randrange(8))
    return key if r.random() < 0.8 else (key, random_scalar(r, r.randrange(8)))


@pytest.mark.slow
def test_200_000_random_values() -> None:
    r = random.Random(20)
    trips = 0
    while trips < 200_000:
        trips += check_round_trip(random_value(r))


# ── attacks ─────────────────────────────────────────────────────────────────────────────────────────────────

P2, P4 = b"\x80\x02", b"\x80\x04"
TOUCH = f"touch {MARKER}".encode()
PAYLOAD = b"X" + struct.pack("<I", len(TOUCH)) + TOUCH
MODULES = (
    b"os system|posix system|nt system|subprocess Popen|subprocess getoutput|builtins eval|builtins "
    b"exec|builtins getattr"
    b"|builtins __import__|__builtin__ eval|pty spawn|marshal loads|types FunctionType|runpy "
    b"run_path|cProfile run|ctypes CDLL"
    b"|pydoc pipepager|importlib import_module|code interact|multiprocessing.util "
    b"spawnv_passfds|_posixsubprocess fork_exec"
    b"|site execsitecustomize|atexit register|webbrowser open|urllib.request urlopen|shutil "
    b"rmtree|torch.load load"
    b"|numpy.load load|operator attrgetter|functools partial|copyreg __newobj__"
)


def short(text: bytes) -> bytes:
    return b"\x8c" + bytes((len(text),)) + text


def attacks() -> Iterator[tuple[str, bytes]]:
    """Name and bytes of pickles that are after something."""
    yield from calls()
    yield from bombs()
    yield from broken()


def calls() -> Iterator[tuple[str, bytes]]:
    for named in MODULES.split(b"|"):
        module, name = named.split()
        yield f"GLOBAL {named.decode()}", P2 + b"c" + module + b"\n" + name + b"\n" + PAYLOAD + b"\x85R."
    yield "STACK_GLOBAL", P4 + short(b"os") + short(b"system") + b"\x93" + PAYLOAD + b"\x85R."
    yield "STACK_GLOBAL dotted", P4 + short(b"os") + short(b"path.os.system") + b"\x93" + PAYLOAD + b"\x85R."
    yield "INST", P2 + b"(" + PAYLOAD + b"ios\nsystem\n."
    yield "OBJ", P2 + b"(cos\nsystem\n" + PAYLOAD + b"o."
    yield "OBJ then POP", P2 + b"(cos\nsystem\n" + PAYLOAD + b"o0N."
    yield "REDUCE of data", P2 + PAYLOAD + b")R."
    yield "BUILD on a dict", P2 + b"}}b."
    yield "NEWOBJ", P2 + b"cos\nsystem\n)\x81."
    yield "NEWOBJ of data", P2 + b"])\x81."
    yield "NEWOBJ_EX", P4 + b"])}\x92."
    for width, code in ((1, b"\x82"), (2, b"\x83"), (4, b"\x84")):
        yield f"EXT{width}", P2 + code + b"\1" + bytes(width - 1) + b"."
    yield "PERSID", P2 + b"P" + TOUCH + b"\n."
    yield "BINPERSID", P2 + PAYLOAD + b"Q."
    yield "NEXT_BUFFER", b"\x80\x05\x97."
    yield "READONLY_BUFFER", b"\x80\x05]\x98."
    yield "BYTEARRAY8", b"\x80\x05\x96" + struct.pack("<Q", 3) + b"abc."
    yield "second PROTO", P2 + P2 + b"N."
    yield "protocol 0", b"cos\nsystem\n(S'touch " + str(MARKER).encode() + b"'\ntR."
    yield "protocol 0 string", P2 + b"S'\\x00'\n."
    yield "protocol 0 integer", P2 + b"I" + b"9" * 100_000 + b"\n."
    yield "object of a class", pickle.dumps(Path("x"), 4)
    yield "exception", pickle.dumps(ValueError("x"), 4)


def bombs() -> Iterator[tuple[str, bytes]]:
    yield "sparse memo", P2 + b"]r\xff\xff\xff\xff."
    yield "sparse memo, fetched", P2 + b"]r\xff\xff\xff\x0f0j\xff\xff\xff\x0f."
    yield (
        "memo flood",
        P2 + b"N" + b"".join(b"r" + struct.pack("<I", i) for i in range(LIMITS.memo + 2)) + b".",
    )
    yield "MEMOIZE flood", P4 + b"N" + b"\x94" * (LIMITS.memo + 2) + b"."
    yield (
        "memo billion laughs",
        P2
        + b"]q\0"
        + b"".join(
            b"0](" + b"h" + bytes((i,)) * 1 + (b"h" + bytes((i,))) * 9 + b"eq" + bytes((i + 1,)) for i in range(12)
        )
        + b".",
    )
    yield "DUP billion laughs", P2 + b"]" + b"2\x86" * 60 + b"."
    yield "DUP tuples as a key", P2 + b"}N" + b"2\x86" * 60 + b"Ns."
    yield "tuples in a frozenset", P4 + b"(N" + b"2\x86" * 60 + b"\x91."
    yield (
        "one long string many times",
        P2 + b"](" + b"X" + struct.pack("<I", 1 << 20) + b"x" * (1 << 20) + b"q\0" + b"h\0" * 3000 + b"e.",
    )
    yield "deep lists", P2 + b"]" * 50_000 + b"a" * 49_999 + b"."
    yield "deep tuples", P2 + b"N" + b"\x85" * 200_000 + b"."
    yield "deep tuple as a key", P2 + b"}N" + b"\x85" * 200_000 + b"Ns."
    yield "deep dicts", P2 + b"}" + b"X\1\0\0\0k}" * 40_000 + b"s" * 40_000 + b"."
    yield "deep tuple in a set", P4 + b"\x8f(N" + b"\x85" * 100_000 + b"\x90."
    yield "list in itself", P2 + b"]q\0h\0a."
    yield "dict in itself", P2 + b"}q\0X\1\0\0\0kh\0s."
    yield "tuple in its own list", P2 + b"]q\0h\0\x85q\1ah\1."
    yield "list changed after use", P2 + b"]q\0]q\1h\0a0Nah\1\x86."
    yield "list put into what it holds", P2 + b"]q\0]q\1h\0a0h\1a."
    yield "list as a key", P2 + b"}]Ns."
    yield "list in a tuple as a key", P2 + b"}]\x85Ns."
    yield "set in a set", P4 + b"\x8f(\x8f\x90."
    longs = [b"\x8a\x0b" + (i * COLLIDING).to_bytes(11, "little") for i in range(1, 20_001)]
    yield "colliding keys", P2 + b"}(" + b"N".join([*longs, b""]) + b"u."
    yield "colliding keys, one by one", P2 + b"}" + b"".join(x + b"Ns" for x in longs) + b"."
    yield "colliding set", P4 + b"\x8f(" + b"".join(longs) + b"\x90."
    yield "colliding frozenset", P4 + b"(" + b"".join(longs) + b"\x91."
    yield "colliding tuples", P2 + b"}(" + b"".join(x + b"\x85N" for x in longs) + b"u."
    yield (
        "colliding keys in many dicts",
        P2 + b"](" + b"".join(b"}(" + b"N".join([*longs[:900], b""]) + b"u" for _ in range(20)) + b"e.",
    )
    yield "MARK flood", P2 + b"(" * 5_000_000 + b"."
    yield "stack flood", P2 + b"N" * 5_000_000 + b"."
    yield "set flood", P4 + b"](" + (b"\x8f" * 90_000 + b"e(") * 40 + b"e."
    yield "list flood", P4 + b"](" + (b"]" * 90_000 + b"e(") * 60 + b"e."
    yield "huge LONG4", P2 + b"\x8b" + struct.pack("<I", 1 << 20) + b"\x7f" * (1 << 20) + b"."
    yield "negative LONG4", P2 + b"\x8b\xff\xff\xff\xff."
    yield "string over the limit", P2 + b"X" + struct.pack("<I", 5 << 20) + b"x" * (5 << 20) + b"."


def broken() -> Iterator[tuple[str, bytes]]:
    yield "empty", b""
    yield "only PROTO", P2
    yield "protocol 1", pickle.dumps([1], 1)
    yield "protocol 6", b"\x80\x06N."
    yield "no STOP", P2 + b"N"
    yield "STOP on nothing", P2 + b"."
    yield "STOP on two", P2 + b"NN."
    yield "STOP under a mark", P2 + b"N(."
    yield "trailing bytes", P2 + b"N.cos\nsystem\n)R."
    yield "two pickles", pickle.dumps([1], 2) * 2
    for code, width in (
        (b"X", 4),
        (b"\x8d", 8),
        (b"B", 4),
        (b"\x8e", 8),
        (b"\x8c", 1),
        (b"C", 1),
        (b"\x95", 8),
    ):
        yield f"length without data {code!r}", P4 + code + b"\xff" * width
        yield f"cut length {code!r}", P4 + code + b"\xff" * (width - 1)
    yield "cut float", P2 + b"G\0\0"
    yield "cut integer", P2 + b"J\0\0"
    yield "not UTF-8", P2 + b"X\2\0\0\0\xff\xfe."
    yield "no such opcode", P2 + b"\xff."
    yield "GET of nothing", P2 + b"h\7."
    yield "PUT of nothing", P2 + b"q\7."
    yield "APPEND to nothing", P2 + b"Na."
    yield "APPEND to a tuple", P2 + b")Na."
    yield "APPENDS without a mark", P2 + b"]Ne."
    yield "SETITEM on a list", P2 + b"]NNs."
    yield "SETITEMS odd", P2 + b"}(Nu."
    yield "ADDITEMS to a list", P4 + b"](N\x90."
    yield "TUPLE2 across a mark", P2 + b"N(N\x86."
    yield "POP_MARK without a mark", P2 + b"N1."
    yield "POP of nothing", P2 + b"0."
    yield "DUP of nothing", P2 + b"2."


ATTACKS = dict(attacks())
HARMLESS = {"sparse memo", "sparse memo, fetched", "list changed after use"}  # read as the data that they are


@pytest.mark.parametrize("name", [name for part in (calls(), broken()) for name, _ in part])
def test_an_attack_is_refused_with_the_place_that_shows_it(name: str) -> None:
    data = ATTACKS[name]
    with pytest.raises(PlainPickleError) as caught:
        loads(data)
    assert 0 <= caught.value.offset <= len(data)
    assert not MARKER.exists()


def test_a_sparse_memo_costs_nothing_and_sharing_is_kept() -> None:
    assert loads(ATTACKS["sparse memo"]) == []
    assert loads(ATTACKS["sparse memo, fetched"]) == []
    assert loads(ATTACKS["list changed after use"]) == ([None], [[None]])


def test_limits_hold_to_the_step() -> None:
    with pytest.raises(PlainPickleError, match="operations"):
        loads(P2 + b"N0" * 10_000 + b"N.", Limits(operations=1000))
    with pytest.raises(PlainPickleError, match="longer than"):
        loads(P2 + b"N.", Limits(input=3))


@pytest.mark.slow
def test_bombs_fit_into_a_small_process() -> None:
    """One that has 1 GiB of address space, and some seconds for each."""
    code = (
        "import json, resource, time, test_plain_pickle as t\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (90, 90))\n"
        "said = {}\n"
        "for name, data in t.bombs():\n"
        "    started = time.process_time()\n"
        "    try: message = type(t.loads(data)).__name__\n"
        "    except t.PlainPickleError as e: message = str(e)\n"
        "    said[name] = message, time.process_time() - started\n"
        "print(json.dumps(said))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=170
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout)
    assert set(said) == {name for name, _ in bombs()}
    assert {name for name, (message, _) in said.items() if "(at byte" not in message} == HARMLESS
    assert not any("has not the memory" in message for message, _ in said.values())
    assert max(seconds for _, seconds in said.values()) < 15
    assert not MARKER.exists()


def test_the_corpus_is_large_enough() -> None:
    assert len(ATTACKS) >= 50


# ── damage ──────────────────────────────────────────────────────────────────────────────────────────────────


class Reference(pickle._Unpickler):  # type: ignore[name-defined,misc]
    """The standard library's own reader in Python (its memo is a dict), with the door for classes closed."""

    def find_class(self, module: str, name: str) -> object:
        raise pickle.UnpicklingError(f"{module}.{name}")

    def persistent_load(self, pid: object) -> object:
        raise pickle.UnpicklingError("persistent id")


def seeds() -> list[bytes]:
    r = random.Random(7)
    values: list[object] = [random_value(r) for _ in range(40)]
    frames = [{"name": "main", "filename": "/opt/train.py", "line": 23}]
    dump = {
        "version": "2.10",
        "pg_status": {"0": {"last_enqueued_collective": 19}},
        "entries": [{"frames": frames, "n": (1 << 40) + i} for i in range(3)],
    }
    return [pickle.dumps(v, p) for v in [*values, dump] for p in PROTOCOLS if written_as_data(v, p)]


OPCODES = [code.encode("latin-1") for code in (op.code for op in __import__("pickletools").opcodes)]


def mutate(r: random.Random, data: bytes, others: list[bytes]) -> bytes:
    out = bytearray(data)
    for _ in range(r.randrange(1, 5)):
        at = r.randrange(2, len(out) + 1) if len(out) > 2 else 0
        how = r.randrange(6)
        if how == 0 and at < len(out):
            out[at] = r.randrange(256)
        elif how == 1:
            out[at:at] = r.choice(OPCODES)
        elif how == 2:
            del out[at : at + r.randrange(1, 6)]
        elif how == 3:
            out[at:at] = out[2 : 2 + r.randrange(20)]
        elif how == 4:
            other = r.choice(others)
            start = r.randrange(2, len(other))
            out[at:] = other[start:]
        elif at < len(out):
            out[at] ^= 1 << r.randrange(8)
    return bytes(out)


def fuzz(count: int, seed: int) -> tuple[int, int]:
    """Read damaged pickles. Return how many were read all the same,
    and on how many of these the reference agreed."""
    r = random.Random(seed)
    corpus = seeds()
    accepted = agreed = 0
    for _ in range(count):
        data = mutate(r, r.choice(corpus), corpus)
        try:
            value = loads(data)
        except PlainPickleError:
            continue
        accepted += 1
        try:
            reference = Reference(io.BytesIO(data)).load()
        except Exception:
            continue  # stricter than this reader about frames
        assert same(value, reference), data
        agreed += 1
    return accepted, agreed


def test_damage_is_refused_or_read_as_the_standard_reader_would() -> None:
    accepted, agreed = fuzz(4000, seed=1)
    assert accepted > 20
    assert agreed > accepted / 2


@pytest.mark.slow
def test_500_000_mutations() -> None:
    accepted, agreed = fuzz(500_000, seed=2)
    print(f"{accepted} of 500000 read, {agreed} of these by the reference too")
    assert agreed > accepted / 2


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80), st.sampled_from(PROTOCOLS))
def test_any_bytes(data: bytes, protocol: int) -> None:
    try:
        loads(b"\x80" + bytes((protocol,)) + data)
    except PlainPickleError as e:
        assert str(e.offset) in str(e)
