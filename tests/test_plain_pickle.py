"""The reader of plain pickles: equal to the standard one on plain data, an error on everything else."""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import python
from postmortem.documents.plain_pickle import LIMITS, Limits, PlainPickleError, loads

MARKER = Path("/tmp/postmortem-plain-pickle-executed")
PROTOCOLS = (2, 3, 4, 5)
COLLIDING = (1 << 61) - 1  # CPython hashes integers modulo this prime


def spelled(value: object) -> str:
    """A value as text, so that equal means equal in type, order and bits: 1 is not True, 0.0 is not -0.0."""
    if isinstance(value, float):
        return struct.pack(">d", value).hex()
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(spelled, value))})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{spelled(k)}: {spelled(v)}" for k, v in value.items()) + "}"
    return hex(value) if type(value) is int else repr(value)


# ── data ────────────────────────────────────────────────────────────────────────────────────────────────────

WORDS = st.text(st.characters(exclude_categories=[]), max_size=20)
SCALARS = st.none() | st.booleans() | st.integers(-(1 << 600), 1 << 600) | st.floats() | WORDS
PLAIN = st.recursive(
    SCALARS, lambda v: st.lists(v) | st.lists(v).map(tuple) | st.dictionaries(WORDS | st.integers(), v), max_leaves=25
)


@settings(max_examples=50)
@given(PLAIN)
def test_plain_values_are_read_in_every_protocol(value: object) -> None:
    for protocol in PROTOCOLS:
        assert spelled(loads(pickle.dumps(value, protocol))) == spelled(value)


def test_long_and_shared_values_are_read() -> None:
    shared = ["a list that comes twice"]
    many = [f"text {i}" for i in range(700)]  # more than one BINPUT and one batch of APPENDS
    for value in ([shared, shared], {"a": shared, "b": shared}, many + many, dict.fromkeys(many, shared), "x" * 70000):
        for protocol in PROTOCOLS:
            assert spelled(loads(pickle.dumps(value, protocol))) == spelled(value)
    assert loads(pickle.dumps([b"y" * 300, 1 << 2000], 4)) == [b"y" * 300, 1 << 2000]


# ── attacks ─────────────────────────────────────────────────────────────────────────────────────────────────

P2, P4 = b"\x80\x02", b"\x80\x04"
TOUCH = f"touch {MARKER}".encode()
PAYLOAD = b"X" + struct.pack("<I", len(TOUCH)) + TOUCH


def short(text: bytes) -> bytes:
    return b"\x8c" + bytes((len(text),)) + text


def calls() -> Iterator[tuple[str, bytes]]:
    for module, name in ((b"os", b"system"), (b"builtins", b"eval"), (b"subprocess", b"Popen"), (b"torch", b"load")):
        yield f"GLOBAL {name.decode()}", P2 + b"c" + module + b"\n" + name + b"\n" + PAYLOAD + b"\x85R."
    yield from {
        "STACK_GLOBAL": P4 + short(b"os") + short(b"system") + b"\x93" + PAYLOAD + b"\x85R.",
        "INST": P2 + b"(" + PAYLOAD + b"ios\nsystem\n.",
        "OBJ": P2 + b"(cos\nsystem\n" + PAYLOAD + b"o.",
        "REDUCE of data": P2 + PAYLOAD + b")R.",
        "BUILD on a dict": P2 + b"}}b.",
        "NEWOBJ of data": P2 + b"])\x81.",
        "NEWOBJ_EX": P4 + b"])}\x92.",
        "EXT1": P2 + b"\x82\1.",
        "PERSID": P2 + b"P" + TOUCH + b"\n.",
        "BINPERSID": P2 + PAYLOAD + b"Q.",
        "NEXT_BUFFER": b"\x80\x05\x97.",
        "BYTEARRAY8": b"\x80\x05\x96" + struct.pack("<Q", 3) + b"abc.",
        "second PROTO": P2 + P2 + b"N.",
        "protocol 0": b"cos\nsystem\n(S'touch " + str(MARKER).encode() + b"'\ntR.",
        "protocol 0 integer": P2 + b"I" + b"9" * 100_000 + b"\n.",
        "object of a class": pickle.dumps(Path("x"), 4),
        "exception": pickle.dumps(ValueError("x"), 4),
        "set": pickle.dumps({1}, 4),
    }.items()


def bombs() -> Iterator[tuple[str, bytes]]:
    yield "memo flood", P2 + b"N" + b"".join(b"r" + struct.pack("<I", i) for i in range(LIMITS.memo + 2)) + b"."
    yield "MEMOIZE flood", P4 + b"N" + b"\x94" * (LIMITS.memo + 2) + b"."
    laughs = b"".join(b"](" + (b"h" + bytes((i,))) * 10 + b"eq" + bytes((i + 1,)) for i in range(12))
    yield "billion laughs", P2 + b"(]q\0" + laughs + b"t."
    text = b"X" + struct.pack("<I", 1 << 20) + b"x" * (1 << 20)
    yield "one string many times", P2 + b"](" + text + b"q\0" + b"h\0" * 3000 + b"e."
    yield "deep lists", P2 + b"]" * 50_000 + b"a" * 49_999 + b"."
    yield "deep tuples", P2 + b"N" + b"\x85" * 200_000 + b"."
    yield "tuple as a key", P2 + b"}N" + b"\x85" * 200_000 + b"Ns."
    yield "deep dicts", P2 + b"}" + b"X\1\0\0\0k}" * 40_000 + b"s" * 40_000 + b"."
    yield "list in itself", P2 + b"]q\0h\0a."
    yield "dict in itself", P2 + b"}q\0X\1\0\0\0kh\0s."
    yield "list as a key", P2 + b"}]Ns."
    longs = [b"\x8a\x0b" + (i * COLLIDING).to_bytes(11, "little") for i in range(1, 20_001)]
    yield "colliding keys", P2 + b"}(" + b"N".join([*longs, b""]) + b"u."
    yield "colliding keys, one by one", P2 + b"}" + b"".join(x + b"Ns" for x in longs) + b"."
    yield "MARK flood", P2 + b"(" * 5_000_000 + b"."
    yield "stack flood", P2 + b"N" * 5_000_000 + b"."
    yield "list flood", P4 + b"](" + (b"]" * 90_000 + b"e(") * 60 + b"e."
    yield "string over the limit", P2 + b"X" + struct.pack("<I", 5 << 20) + b"x" * (5 << 20) + b"."


def broken() -> Iterator[tuple[str, bytes]]:
    """Streams that are empty, cut, unbalanced, or of another protocol."""
    texts = [b"", P2, b"\x80\x06N.", P2 + b"N", P2 + b".", P2 + b"NN.", P2 + b"N(.", P2 + b"N.cos\nsystem\n)R."]
    texts += [P2 + b"G\0\0", P2 + b"X\2\0\0\0\xff\xfe.", P2 + b"\xff.", P2 + b"h\7.", P2 + b"q\7.", P2 + b")Na."]
    texts += [P2 + b"]Ne.", P2 + b"]NNs.", P2 + b"}(Nu.", P2 + b"N(N\x86.", pickle.dumps([1], 1)]
    for code, width in ((b"X", 4), (b"\x8d", 8), (b"B", 4), (b"\x8c", 1), (b"C", 1), (b"\x95", 8)):
        texts += [P4 + code + b"\xff" * width, P4 + code + b"\xff" * (width - 1)]
    yield from ((repr(text), text) for text in texts)


def test_attacks_and_damage_are_refused_with_an_offset() -> None:
    for name, data in (*calls(), *broken()):
        with pytest.raises(PlainPickleError) as caught:
            loads(data)
        assert 0 <= caught.value.offset <= len(data), name
    assert not MARKER.exists()


def test_a_sparse_memo_costs_nothing() -> None:
    assert loads(P2 + b"]r\xff\xff\xff\xff.") == []


def test_limits_hold() -> None:
    with pytest.raises(PlainPickleError, match="operations"):
        loads(P2 + b"N\x85" * 10_000 + b".", Limits(operations=1000))
    with pytest.raises(PlainPickleError, match="longer than"):
        loads(P2 + b"N.", Limits(input=3))


@pytest.mark.slow
def test_bombs_are_refused_in_a_small_process() -> None:
    """In 1 GiB of address space, and a few seconds each."""
    code = (
        "import json, resource, time, test_plain_pickle as t\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "found = {}\n"
        "for name, data in t.bombs():\n"
        "    started = time.process_time()\n"
        "    try: message = type(t.loads(data)).__name__\n"
        "    except t.PlainPickleError as e: message = str(e)\n"
        "    found[name] = message, time.process_time() - started\n"
        "print(json.dumps(found))\n"
    )
    done = python("-c", code, cwd=Path(__file__).parent)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert set(found) == {name for name, _ in bombs()}
    assert all("(at byte" in message and "has not the memory" not in message for message, _ in found.values()), found
    assert max(seconds for _, seconds in found.values()) < 15


# ── damage ──────────────────────────────────────────────────────────────────────────────────────────────────


class Reference(pickle._Unpickler):  # type: ignore[name-defined,misc]
    """The standard library's reader in Python, without classes."""

    def find_class(self, module: str, name: str) -> object:
        raise pickle.UnpicklingError(f"{module}.{name}")

    def persistent_load(self, pid: object) -> object:
        raise pickle.UnpicklingError("persistent id")


OPCODES = [op.code.encode("latin-1") for op in pickletools.opcodes]


def mutated(r: random.Random, data: bytes, others: list[bytes]) -> bytes:
    out = bytearray(data)
    for _ in range(r.randrange(1, 5)):
        at = r.randrange(2, len(out) + 1) if len(out) > 2 else 0
        how = r.randrange(4)
        if how == 0 and at < len(out):
            out[at] = r.randrange(256)
        elif how == 1:
            out[at:at] = r.choice(OPCODES)
        elif how == 2:
            del out[at : at + r.randrange(1, 6)]
        else:
            other = r.choice(others)
            out[at:] = other[r.randrange(2, len(other)) :]
    return bytes(out)


def test_damaged_pickles_are_refused_or_read_as_the_standard_reader_does() -> None:
    r = random.Random(1)
    entry = {"frames": [{"name": "main", "line": 23}], "sizes": [[2, 3], (4,)], "n": 1 << 40, "x": -0.5, "done": True}
    values = [
        {"version": "2.10", "pg_status": {"0": {"last": 19}}, "entries": [entry, entry]},
        ["é", None, -3],
        {7: ()},
    ]
    corpus = [pickle.dumps(value, protocol) for value in values for protocol in PROTOCOLS]
    accepted = agreed = 0
    for _ in range(1500):
        data = mutated(r, r.choice(corpus), corpus)
        try:
            value = loads(data)
        except PlainPickleError:
            continue
        accepted += 1
        try:
            reference = Reference(io.BytesIO(data)).load()
        except Exception:
            continue  # stricter about frames
        assert spelled(value) == spelled(reference), data
        agreed += 1
    assert accepted > 10 and agreed > accepted / 2
