"""Pickles of plain data, read without ever running what is in them.
torch's flight recorder writes such pickles.

    80 02 7d 71 00 28 58 07 00 00 00 version 71 01 58 04 00 00 00 2.10 71 02 75 2e      {"version": "2.10"}

In: bytes. Out: None, bool, int, float, str, bytes, list, tuple, dict, set,
frozenset, or one PlainPickleError.

The standard unpickler with a closed door for classes is not enough: nine bytes (LONG_BINPUT with a large
index) make it fill gigabytes, and what it returns may be nested, shared or colliding so that the first walk
over it dies. So this is a machine of its own: it knows the opcodes that build data (protocols 2 to 5,
pickletools.py) and refuses every other, each step has a price, and what was built is measured before it is
handed out.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable

from postmortem.blocks.pickle_machine import (
    DICT,
    ENTRY,
    ITEM,
    LIMITS,
    LIST,
    SET,
    TUPLE,
    Limits,
    Machine,
    PlainPickleError,
    measure,
)


def loads(data: bytes, limits: Limits = LIMITS) -> object:
    """Return the plain data in `data`. Raises PlainPickleError, and nothing else."""
    if len(data) > limits.input:
        raise PlainPickleError(f"the pickle is longer than {limits.input} bytes", limits.input)
    if len(data) < 2 or data[0] != 0x80 or not 2 <= data[1] <= 5:
        raise PlainPickleError("no pickle of protocol 2 to 5 starts like this", 0)
    machine = Machine(data, limits)
    try:
        value = machine.run(_TABLE)
        measure(value, limits, machine.pos)
    except MemoryError:
        raise PlainPickleError("this machine has not the memory to read on", machine.pos) from None
    return value


# ── the opcodes ─────────────────────────────────────────────────────────────────────────────────────────────


def _refuse(m: Machine) -> None:
    """GLOBAL, REDUCE, BUILD, persistent ids, extensions, buffers, and the text opcodes of protocol 0."""
    from pickletools import opcodes

    code = m.data[m.at]
    name = next((op.name for op in opcodes if op.code == chr(code)), None)
    raise m.error(f"{name} builds more than plain data" if name else f"0x{code:02x} is no opcode")


def _constant(value: object) -> Callable[[Machine], None]:
    return lambda m: m.stack.append(value)


def _integer(width: int, signed: bool = False) -> Callable[[Machine], None]:
    def read(m: Machine) -> None:
        m.charge(32)
        m.stack.append(int.from_bytes(m.take(width), "little", signed=signed))

    return read


def _long(width: int) -> Callable[[Machine], None]:
    def read(m: Machine) -> None:
        size = m.number(width)  # LONG4 has a signed length; a negative one is a huge one here
        if size > m.limits.long:
            raise m.error(f"an integer of {size} bytes")
        m.charge(32 + size)
        m.stack.append(int.from_bytes(m.take(size), "little", signed=True))

    return read


def _float(m: Machine) -> None:
    m.charge(24)
    m.stack.append(struct.unpack(">d", m.take(8))[0])


def _string(width: int, text: bool) -> Callable[[Machine], None]:
    def read(m: Machine) -> None:
        size = m.number(width)
        if size > m.limits.string:
            raise m.error(f"a string of {size} bytes")
        data = m.take(size)
        try:
            value = data.decode("utf-8", "surrogatepass") if text else data
        except UnicodeDecodeError:
            raise m.error("a string is not UTF-8") from None
        m.charge(sys.getsizeof(value))
        m.stack.append(value)

    return read


def _empty(kind: type, price: int) -> Callable[[Machine], None]:
    def make(m: Machine) -> None:
        m.charge(price)
        m.stack.append(kind())

    return make


def _extend(take: Callable[[Machine], list[object]]) -> Callable[[Machine], None]:
    def fill(m: Machine) -> None:
        items = take(m)
        m.charge(ITEM * len(items))
        m.top(list).extend(items)

    return fill


def _tuple_of(n: int) -> Callable[[Machine], None]:
    def make(m: Machine) -> None:
        if len(m.stack) < m.floor + n:
            raise m.error("there is too little on the stack for a tuple")
        m.charge(TUPLE)
        m.stack[-n:] = [tuple(m.stack[-n:])]

    return make


def _gather(kind: type, price: int) -> Callable[[Machine], None]:
    def make(m: Machine) -> None:
        items = m.to_mark()
        m.charge(price + ITEM * len(items))
        m.stack.append(kind(items))

    return make


def _fill(m: Machine, found: dict[object, object], items: list[object]) -> None:
    if len(items) % 2:
        raise m.error("a key has no value")
    m.charge(ENTRY * len(items) // 2)
    for i in range(0, len(items), 2):
        found[m.key(items[i])] = items[i + 1]


def _dict(m: Machine) -> None:
    items = m.to_mark()
    m.charge(DICT)
    m.stack.append({})
    _fill(m, m.top(dict), items)


def _set(take: Callable[[Machine], list[object]]) -> Callable[[Machine], None]:
    def fill(m: Machine) -> None:
        items = take(m)
        _fill(m, m.top(dict), items)

    return fill


def _add_items(m: Machine) -> None:
    items = m.to_mark()
    m.charge(ENTRY * len(items))
    m.top(set).update(map(m.key, items))


def _frozen_set(m: Machine) -> None:
    items = m.to_mark()
    m.charge(SET + ENTRY * len(items))
    m.stack.append(frozenset(map(m.key, items)))


def _put(width: int) -> Callable[[Machine], None]:
    return lambda m: m.remember(m.number(width))


def _get(width: int) -> Callable[[Machine], None]:
    def read(m: Machine) -> None:
        index = m.number(width)
        if index not in m.memo:
            raise m.error(f"nothing was remembered as {index}")
        m.stack.append(m.memo[index])

    return read


def _frame(m: Machine) -> None:
    """A frame is a hint for buffered readers; one that reaches beyond the end tells of a cut file."""
    size = m.number(8)
    if size > len(m.data) - m.pos:
        raise m.error(f"a frame of {size} bytes, {len(m.data) - m.pos} are left")


_OPCODES: dict[bytes, Callable[[Machine], None]] = {
    b"N": _constant(None), b"\x88": _constant(True), b"\x89": _constant(False),
    b"K": _integer(1), b"M": _integer(2), b"J": _integer(4, signed=True), b"\x8a": _long(1),
    b"\x8b": _long(4), b"G": _float, b"\x8c": _string(1, True), b"X": _string(4, True),
    b"\x8d": _string(8, True), b"C": _string(1, False), b"B": _string(4, False), b"\x8e": _string(8, False),
    b"]": _empty(list, LIST), b"}": _empty(dict, DICT), b"\x8f": _empty(set, SET), b")": _constant(()),
    b"a": _extend(lambda m: [m.pop()]), b"e": _extend(Machine.to_mark), b"l": _gather(list, LIST),
    b"t": _gather(tuple, TUPLE), b"\x85": _tuple_of(1), b"\x86": _tuple_of(2), b"\x87": _tuple_of(3),
    b"s": _set(lambda m: [m.pop(), m.pop()][::-1]), b"u": _set(Machine.to_mark), b"d": _dict,
    b"\x90": _add_items, b"\x91": _frozen_set, b"(": Machine.mark, b"0": Machine.drop,
    b"1": lambda m: m.to_mark().clear(), b"2": lambda m: m.stack.extend([m.pop()] * 2), b"q": _put(1),
    b"r": _put(4), b"\x94": lambda m: m.remember(len(m.memo)), b"h": _get(1), b"j": _get(4), b"\x95": _frame,
}  # fmt: skip
_TABLE = [_OPCODES.get(bytes((code,)), _refuse) for code in range(256)]
