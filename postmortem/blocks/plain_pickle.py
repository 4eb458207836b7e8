"""Pickles of plain data (torch's flight recorder writes them), read without running anything in them.

    80 02 7d 71 00 28 58 07 00 00 00 version 71 01 58 04 00 00 00 2.10 71 02 75 2e      {"version": "2.10"}

In: bytes. Out: None, bool, int, float, str, bytes, list, tuple and dict, or a PlainPickleError.

A restricted `pickle.Unpickler` is not enough: nine bytes (LONG_BINPUT with a large index) make it allocate
gigabytes, and its result may be nested, shared or colliding so that the first walk over it dies. This machine
knows the opcodes that build plain data (protocols 2 to 5, pickletools.py) and refuses all others, counts the cost
of each step, and measures the result.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any


class PlainPickleError(ValueError):
    """These bytes are not a pickle of plain data, or a larger one than allowed. `offset` is the place."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(f"{message} (at byte {offset})")
        self.message = message
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest cost of one pickle. A dump of 2,000 collectives takes 170,000 operations and 6 MiB."""

    input: int = 256 << 20
    operations: int = 10_000_000
    memory: int = 512 << 20  # bytes, estimated
    memo: int = 1 << 20
    stack: int = 100_000  # items and marks
    string: int = 4 << 20
    long: int = 1024  # bytes of one integer
    nesting: int = 100
    expanded: int = 64_000_000  # leaves, counted as often as a walk over the result meets them
    keys: int = 10_000  # integers as keys, of which the hashes can be made to collide


LIMITS = Limits()
_STOP = 0x2E
_SLICE = 1000  # operations between two checks of the stack
_CONTAINERS = frozenset((list, tuple, dict))
_LIST, _DICT, _TUPLE = 160, 400, 160  # bytes for an empty one
_ITEM, _ENTRY = 10, 110  # bytes for one more element


def loads(data: bytes, limits: Limits = LIMITS) -> object:
    """The plain data in `data`. Raises PlainPickleError, and nothing else."""
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
    """A stack, the marks in it, and the memo. `floor` is the height of the topmost mark: nothing pops below."""

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
        """The result of all operations up to STOP."""
        data, end = self.data, len(self.data)
        for _ in range(max(1, self.limits.operations // _SLICE)):
            for _ in range(_SLICE):
                at = self.at = self.pos
                if at >= end:
                    raise self.error("it ends before STOP")
                code = data[at]
                self.pos = at + 1
                if code == _STOP:
                    return self.result()
                _TABLE[code](self)
            if len(self.stack) + len(self.marks) > self.limits.stack:
                raise self.error(f"more than {self.limits.stack} items wait on the stack")
        raise self.error(f"more than {self.limits.operations} operations")

    def result(self) -> object:
        if self.pos != len(self.data):
            raise self.error(f"{len(self.data) - self.pos} bytes follow STOP")
        if len(self.stack) != 1 or self.marks:
            raise self.error(f"STOP finds {len(self.stack)} items and {len(self.marks)} marks where one item should be")
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

    def push(self, value: object, cost: int) -> None:
        self.charge(cost)
        self.stack.append(value)

    def charge(self, cost: int) -> None:
        self.memory -= cost
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

    def mark(self) -> None:
        self.floor = len(self.stack)
        self.marks.append(self.floor)

    def to_mark(self) -> list[object]:
        """Remove all items above the topmost mark, and the mark."""
        if not self.marks:
            raise self.error("there is no mark")
        items = self.stack[self.floor :]
        del self.stack[self.floor :]
        self.marks.pop()
        self.floor = self.marks[-1] if self.marks else 0
        return items

    def put(self, index: int) -> None:
        if len(self.stack) <= self.floor:
            raise self.error("there is nothing to remember")
        self.memo[index] = self.stack[-1]
        if len(self.memo) > self.limits.memo:
            raise self.error(f"more than {self.limits.memo} values are remembered")

    def get(self, index: int) -> None:
        if index not in self.memo:
            raise self.error(f"nothing was remembered as {index}")
        self.stack.append(self.memo[index])

    def fill(self, items: list[object]) -> None:
        """Put keys and values into the dict on the stack."""
        found = self.top(dict)
        if len(items) % 2:
            raise self.error("a key has no value")
        self.charge(_ENTRY * len(items) // 2)
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is not str:
                self.keys -= 1
                if type(key) is not int:
                    raise self.error(f"a {type(key).__name__} cannot be a key")
                if self.keys < 0:
                    raise self.error(f"more than {self.limits.keys} keys that are not text")
            found[key] = value

    def extend(self, items: list[object]) -> None:
        self.charge(_ITEM * len(items))
        self.top(list).extend(items)

    def tuple_of(self, n: int) -> None:
        if len(self.stack) < self.floor + n:
            raise self.error("there is too little on the stack for a tuple")
        self.charge(_TUPLE)
        self.stack[-n:] = [tuple(self.stack[-n:])]

    def tuple_to_mark(self) -> None:
        items = self.to_mark()
        self.push(tuple(items), _TUPLE + _ITEM * len(items))

    def long(self) -> None:
        size = self.number(1)
        if size > self.limits.long:
            raise self.error(f"an integer of {size} bytes")
        self.push(int.from_bytes(self.take(size), "little", signed=True), 32 + size)

    def string(self, width: int, text: bool = True) -> None:
        size = self.number(width)
        if size > self.limits.string:
            raise self.error(f"a string of {size} bytes")
        data = self.take(size)
        try:
            value = data.decode("utf-8", "surrogatepass") if text else data
        except UnicodeDecodeError:
            raise self.error("a string is not UTF-8") from None
        self.push(value, sys.getsizeof(value))

    def frame(self) -> None:
        """A frame is a hint for buffered readers; one that reaches beyond the end shows a cut file."""
        size = self.number(8)
        if size > len(self.data) - self.pos:
            raise self.error(f"a frame of {size} bytes, {len(self.data) - self.pos} are left")

    def refuse(self) -> None:
        """GLOBAL, REDUCE, BUILD, persistent ids, extensions, buffers, sets, and the opcodes of protocol 0."""
        from pickletools import opcodes

        code = self.data[self.at]
        name = next((op.name for op in opcodes if op.code == chr(code)), None)
        raise self.error(f"{name} builds more than plain data" if name else f"0x{code:02x} is no opcode")


_OPCODES: dict[bytes, Callable[[_Machine], None]] = {
    b"N": lambda m: m.push(None, 0),
    b"\x88": lambda m: m.push(True, 0),
    b"\x89": lambda m: m.push(False, 0),
    b"K": lambda m: m.push(m.number(1), 32),
    b"M": lambda m: m.push(m.number(2), 32),
    b"J": lambda m: m.push(int.from_bytes(m.take(4), "little", signed=True), 32),
    b"\x8a": _Machine.long,
    b"G": lambda m: m.push(struct.unpack(">d", m.take(8))[0], 24),
    b"\x8c": lambda m: m.string(1),
    b"X": lambda m: m.string(4),
    b"\x8d": lambda m: m.string(8),
    b"C": lambda m: m.string(1, text=False),
    b"B": lambda m: m.string(4, text=False),
    b"]": lambda m: m.push([], _LIST),
    b"}": lambda m: m.push({}, _DICT),
    b")": lambda m: m.push((), 0),
    b"a": lambda m: m.extend([m.pop()]),
    b"e": lambda m: m.extend(m.to_mark()),
    b"t": _Machine.tuple_to_mark,
    b"\x85": lambda m: m.tuple_of(1),
    b"\x86": lambda m: m.tuple_of(2),
    b"\x87": lambda m: m.tuple_of(3),
    b"s": lambda m: m.fill([m.pop(), m.pop()][::-1]),
    b"u": lambda m: m.fill(m.to_mark()),
    b"(": _Machine.mark,
    b"q": lambda m: m.put(m.number(1)),
    b"r": lambda m: m.put(m.number(4)),
    b"\x94": lambda m: m.put(len(m.memo)),
    b"h": lambda m: m.get(m.number(1)),
    b"j": lambda m: m.get(m.number(4)),
    b"\x95": _Machine.frame,
}
_TABLE = [_OPCODES.get(bytes((code,)), _Machine.refuse) for code in range(256)]


class _Level:
    """A container that is being measured."""

    __slots__ = ("height", "rest", "size", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.rest: Iterator[object] = chain.from_iterable(value.items()) if type(value) is dict else iter(value)
        self.size = 1
        self.height = 1

    def add(self, size: int, height: int) -> None:
        self.size += size
        self.height = max(self.height, height + 1)


def _measure(root: object, limits: Limits, end: int) -> None:
    """Refuse cycles, deep nesting, and shared parts that expand beyond all bounds."""
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
