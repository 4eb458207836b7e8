"""Pickles of plain data, read without ever running what is in them. torch's flight recorder writes such pickles.

    80 02 7d 71 00 28 58 07 00 00 00 version 71 01 58 04 00 00 00 2.10 71 02 75 2e      {"version": "2.10"}

In: bytes. Out: None, bool, int, float, str, bytes, list, tuple, dict, set, frozenset, or one PlainPickleError.

The standard unpickler with a closed door for classes is not enough: nine bytes (LONG_BINPUT with a large index) make it
fill gigabytes, and what it returns may be nested, shared or colliding so that the first walk over it dies. So this is a
machine of its own: it knows the opcodes that build data (protocols 2 to 5, pickletools.py) and refuses every other, each
step has a price, and what was built is measured before it is handed out.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any


class PlainPickleError(ValueError):
    """These bytes are no pickle of plain data, or a larger one than allowed. `offset` is where that shows."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(f"{message} (at byte {offset})")
        self.message = message
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Limits:
    """What one pickle may cost. A dump of 2,000 collectives takes 170,000 operations and 6 MiB."""

    input: int = 256 << 20
    operations: int = 10_000_000
    memory: int = 512 << 20  # bytes, as estimated from what is built
    memo: int = 1 << 20
    stack: int = 100_000  # items and marks
    string: int = 4 << 20
    long: int = 1024  # bytes of one integer
    nesting: int = 100
    expanded: int = 64_000_000  # leaves, counted as often as a walk over the result meets them
    keys: int = (
        10_000  # parts of keys other than text: their hashes are known, so they can be made to collide
    )


LIMITS = Limits()
_STOP = 0x2E
_SLICE = 1000  # operations between two looks at the stack
_CONTAINERS = frozenset((list, tuple, dict, set, frozenset))
_HASHABLE = frozenset((int, float, bool, type(None), str, bytes))
_LIST, _DICT, _SET, _TUPLE = 160, 400, 400, 160  # bytes for an empty one and for measuring it
_ITEM, _ENTRY = 10, 110  # bytes for one more element of a list, of a dict or set


def loads(data: bytes, limits: Limits = LIMITS) -> object:
    """Return the plain data in `data`. Raises PlainPickleError, and nothing else."""
    if len(data) > limits.input:
        raise PlainPickleError(f"the pickle is longer than {limits.input} bytes", limits.input)
    if len(data) < 2 or data[0] != 0x80 or not 2 <= data[1] <= 5:
        raise PlainPickleError("no pickle of protocol 2 to 5 starts like this", 0)
    machine = _Machine(data, limits)
    try:
        value = machine.run()
        _measure(value, limits, machine.pos)
    except MemoryError:
        raise PlainPickleError("this machine has not the memory to read on", machine.pos) from None
    return value


class _Machine:
    """A stack, the marks in it, and the memo. `floor` is the height of the topmost mark: nothing pops below it."""

    __slots__ = ("at", "data", "floor", "keys", "limits", "marks", "memo", "memory", "pos", "stack")

    def __init__(self, data: bytes, limits: Limits) -> None:
        self.data = data
        self.limits = limits
        self.pos = 2
        self.at = 0
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.floor = 0
        self.memo: dict[int, object] = {}
        self.memory = limits.memory
        self.keys = limits.keys

    def run(self) -> object:
        data, end, table = self.data, len(self.data), _TABLE
        for _ in range(max(1, self.limits.operations // _SLICE)):
            for _ in range(_SLICE):
                at = self.at = self.pos
                if at >= end:
                    raise self.error("it ends before STOP")
                code = data[at]
                self.pos = at + 1
                if code == _STOP:
                    return self.result()
                table[code](self)
            if len(self.stack) + len(self.marks) > self.limits.stack:
                raise self.error(f"more than {self.limits.stack} items wait on the stack")
        raise self.error(f"more than {self.limits.operations} operations")

    def result(self) -> object:
        if self.pos != len(self.data):
            raise self.error(f"{len(self.data) - self.pos} bytes follow STOP")
        if len(self.stack) != 1 or self.marks:
            raise self.error(
                f"STOP finds {len(self.stack)} items and {len(self.marks)} marks where one item should be"
            )
        return self.stack[0]

    def error(self, message: str) -> PlainPickleError:
        return PlainPickleError(message, self.at)

    def take(self, n: int) -> bytes:
        """The next `n` bytes."""
        start = self.pos
        if n > len(self.data) - start:
            raise self.error(f"{n} bytes are announced, {len(self.data) - start} are left")
        self.pos = start + n
        return self.data[start : start + n]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def charge(self, n: int) -> None:
        self.memory -= n
        if self.memory < 0:
            raise self.error(f"it would take more than {self.limits.memory >> 20} MiB of memory")

    def pop(self) -> object:
        if len(self.stack) <= self.floor:
            raise self.error("there is nothing on the stack")
        return self.stack.pop()

    def top(self, kind: type) -> Any:
        """The container that the next opcode fills. It was made here, so its type is exact."""
        if len(self.stack) <= self.floor or type(self.stack[-1]) is not kind:
            raise self.error(f"there is no {kind.__name__} to fill")
        return self.stack[-1]

    def to_mark(self) -> list[object]:
        """Take all items above the topmost mark, and the mark."""
        if not self.marks:
            raise self.error("there is no mark")
        items = self.stack[self.floor :]
        del self.stack[self.floor :]
        self.marks.pop()
        self.floor = self.marks[-1] if self.marks else 0
        return items

    def mark(self) -> None:
        self.floor = len(self.stack)
        self.marks.append(self.floor)

    def drop(self) -> None:
        if self.marks and len(self.stack) == self.floor:
            self.to_mark()  # the mark itself is the topmost item
        else:
            self.pop()

    def remember(self, index: int) -> None:
        if len(self.stack) <= self.floor:
            raise self.error("there is nothing to remember")
        self.memo[index] = self.stack[-1]
        if len(self.memo) > self.limits.memo:
            raise self.error(f"more than {self.limits.memo} values are remembered")

    def key(self, value: object) -> object:
        """Check that a value may be hashed: deep, wide or colliding keys cost more than their bytes."""
        if type(value) is str or type(value) is bytes:
            return value
        todo = [(value, 1)]
        while todo:
            part, depth = todo.pop()
            self.keys -= 1
            if self.keys < 0 or depth > self.limits.nesting:
                raise self.error(
                    f"more than {self.limits.keys} keys that are not text, or one nested more than {self.limits.nesting} deep"
                )
            if isinstance(part, tuple | frozenset):
                if len(part) > self.keys:
                    raise self.error(f"more than {self.limits.keys} keys that are not text")
                todo.extend((p, depth + 1) for p in part)
            elif type(part) not in _HASHABLE:
                raise self.error(f"a {type(part).__name__} cannot be a key")
        return value


def _measure(root: object, limits: Limits, end: int) -> None:
    """Refuse what a walk would not survive: cycles, deep nesting, and shared parts that expand beyond all bounds."""
    if type(root) not in _CONTAINERS:
        return
    done: dict[int, tuple[int, int]] = {}  # container -> its expanded size, its height
    path = [_Level(root)]
    open_ = {id(root)}
    while path:
        level = path[-1]
        for child in level.rest:
            if type(child) not in _CONTAINERS:
                level.size += 1 + (len(child) >> 4) if isinstance(child, str | bytes) else 1
            elif known := done.get(id(child)):
                level.add(*known)
            elif id(child) in open_:
                raise PlainPickleError("a container holds itself", end)
            else:
                open_.add(id(child))
                path.append(_Level(child))
                break
        else:
            path.pop()
            open_.discard(id(level.value))
            done[id(level.value)] = (level.size, level.height)
            if path:
                path[-1].add(level.size, level.height)
        if level.size > limits.expanded:
            raise PlainPickleError(f"shared parts unfold to more than {limits.expanded} values", end)
        if len(path) > limits.nesting or level.height > limits.nesting:
            raise PlainPickleError(f"containers are nested more than {limits.nesting} deep", end)


class _Level:
    """A container that is being measured."""

    __slots__ = ("height", "rest", "size", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.rest: Iterator[object] = (
            chain.from_iterable(value.items()) if type(value) is dict else iter(value)
        )
        self.size = 1
        self.height = 1

    def add(self, size: int, height: int) -> None:
        self.size += size
        self.height = max(self.height, height + 1)


# ── the opcodes ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _refuse(m: _Machine) -> None:
    """GLOBAL, REDUCE, BUILD, persistent ids, extensions, buffers, and the text opcodes of protocol 0."""
    from pickletools import opcodes

    code = m.data[m.at]
    name = next((op.name for op in opcodes if op.code == chr(code)), None)
    raise m.error(f"{name} builds more than plain data" if name else f"0x{code:02x} is no opcode")


def _constant(value: object) -> Callable[[_Machine], None]:
    return lambda m: m.stack.append(value)


def _integer(width: int, signed: bool = False) -> Callable[[_Machine], None]:
    def read(m: _Machine) -> None:
        m.charge(32)
        m.stack.append(int.from_bytes(m.take(width), "little", signed=signed))

    return read


def _long(width: int) -> Callable[[_Machine], None]:
    def read(m: _Machine) -> None:
        size = m.number(width)  # LONG4 has a signed length; a negative one is a huge one here
        if size > m.limits.long:
            raise m.error(f"an integer of {size} bytes")
        m.charge(32 + size)
        m.stack.append(int.from_bytes(m.take(size), "little", signed=True))

    return read


def _float(m: _Machine) -> None:
    m.charge(24)
    m.stack.append(struct.unpack(">d", m.take(8))[0])


def _string(width: int, text: bool) -> Callable[[_Machine], None]:
    def read(m: _Machine) -> None:
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


def _empty(kind: type, price: int) -> Callable[[_Machine], None]:
    def make(m: _Machine) -> None:
        m.charge(price)
        m.stack.append(kind())

    return make


def _extend(take: Callable[[_Machine], list[object]]) -> Callable[[_Machine], None]:
    def fill(m: _Machine) -> None:
        items = take(m)
        m.charge(_ITEM * len(items))
        m.top(list).extend(items)

    return fill


def _tuple_of(n: int) -> Callable[[_Machine], None]:
    def make(m: _Machine) -> None:
        if len(m.stack) < m.floor + n:
            raise m.error("there is too little on the stack for a tuple")
        m.charge(_TUPLE)
        m.stack[-n:] = [tuple(m.stack[-n:])]

    return make


def _gather(kind: type, price: int) -> Callable[[_Machine], None]:
    def make(m: _Machine) -> None:
        items = m.to_mark()
        m.charge(price + _ITEM * len(items))
        m.stack.append(kind(items))

    return make


def _fill(m: _Machine, found: dict[object, object], items: list[object]) -> None:
    if len(items) % 2:
        raise m.error("a key has no value")
    m.charge(_ENTRY * len(items) // 2)
    for i in range(0, len(items), 2):
        found[m.key(items[i])] = items[i + 1]


def _dict(m: _Machine) -> None:
    items = m.to_mark()
    m.charge(_DICT)
    m.stack.append({})
    _fill(m, m.top(dict), items)


def _set(take: Callable[[_Machine], list[object]]) -> Callable[[_Machine], None]:
    def fill(m: _Machine) -> None:
        items = take(m)
        _fill(m, m.top(dict), items)

    return fill


def _add_items(m: _Machine) -> None:
    items = m.to_mark()
    m.charge(_ENTRY * len(items))
    m.top(set).update(map(m.key, items))


def _frozen_set(m: _Machine) -> None:
    items = m.to_mark()
    m.charge(_SET + _ENTRY * len(items))
    m.stack.append(frozenset(map(m.key, items)))


def _put(width: int) -> Callable[[_Machine], None]:
    return lambda m: m.remember(m.number(width))


def _get(width: int) -> Callable[[_Machine], None]:
    def read(m: _Machine) -> None:
        index = m.number(width)
        if index not in m.memo:
            raise m.error(f"nothing was remembered as {index}")
        m.stack.append(m.memo[index])

    return read


def _frame(m: _Machine) -> None:
    """A frame is a hint for buffered readers; one that reaches beyond the end tells of a cut file."""
    size = m.number(8)
    if size > len(m.data) - m.pos:
        raise m.error(f"a frame of {size} bytes, {len(m.data) - m.pos} are left")


_OPCODES: dict[bytes, Callable[[_Machine], None]] = {
    b"N": _constant(None), b"\x88": _constant(True), b"\x89": _constant(False),
    b"K": _integer(1), b"M": _integer(2), b"J": _integer(4, signed=True), b"\x8a": _long(1), b"\x8b": _long(4), b"G": _float,
    b"\x8c": _string(1, True), b"X": _string(4, True), b"\x8d": _string(8, True),
    b"C": _string(1, False), b"B": _string(4, False), b"\x8e": _string(8, False),
    b"]": _empty(list, _LIST), b"}": _empty(dict, _DICT), b"\x8f": _empty(set, _SET), b")": _constant(()),
    b"a": _extend(lambda m: [m.pop()]), b"e": _extend(_Machine.to_mark), b"l": _gather(list, _LIST), b"t": _gather(tuple, _TUPLE),
    b"\x85": _tuple_of(1), b"\x86": _tuple_of(2), b"\x87": _tuple_of(3),
    b"s": _set(lambda m: [m.pop(), m.pop()][::-1]), b"u": _set(_Machine.to_mark), b"d": _dict, b"\x90": _add_items, b"\x91": _frozen_set,
    b"(": _Machine.mark, b"0": _Machine.drop, b"1": lambda m: m.to_mark().clear(), b"2": lambda m: m.stack.extend([m.pop()] * 2),
    b"q": _put(1), b"r": _put(4), b"\x94": lambda m: m.remember(len(m.memo)), b"h": _get(1), b"j": _get(4),
    b"\x95": _frame,
}  # fmt: skip
_TABLE = [_OPCODES.get(bytes((code,)), _refuse) for code in range(256)]
