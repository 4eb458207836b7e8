"""Pickles of plain data (torch's flight recorder writes them), read without running anything in them.

    80 02 7d 71 00 28 58 07 00 00 00 version 71 01 58 04 00 00 00 2.10 71 02 75 2e      {"version": "2.10"}

In: bytes. Out: None, bool, int, float, str, bytes, list, tuple and dict, or a PlainPickleError.

A restricted `pickle.Unpickler` is not enough: nine bytes (LONG_BINPUT with a large index) make it allocate
gigabytes, and its result may be nested, shared or colliding so that the first walk over it dies. Here
`pickletools.genops` decodes the opcodes; those that build plain data (protocols 2 to 5) run, all others are
refused. The cost of each step is counted, and the result is measured.
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from itertools import chain
from pickletools import genops
from typing import Any


class PlainPickleError(ValueError):
    """These bytes are not a pickle of plain data, or a larger one than allowed. `offset` is the place."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(f"{message} (at byte {offset})")
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
_CONTAINERS = frozenset((list, tuple, dict))
_ITEM, _ENTRY = 10, 110  # bytes for one more element
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_EMPTY = {"EMPTY_LIST": list, "EMPTY_DICT": dict}
_VALUES = frozenset(
    ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
) | {"BINBYTES", "SHORT_BINBYTES"}
_PUTS, _GETS = frozenset(("BINPUT", "LONG_BINPUT", "MEMOIZE")), frozenset(("BINGET", "LONG_BINGET"))
_TAKES = {"APPEND": 1, "SETITEM": 2, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "APPENDS": 0, "SETITEMS": 0, "TUPLE": 0}


def loads(data: bytes, limits: Limits = LIMITS, partly: bool = False) -> object:
    """The plain data in `data`. Raises PlainPickleError, and nothing else. `partly`: of a dict that is cut or larger
    than a limit, the whole items before that."""
    if len(data) > limits.input:
        raise PlainPickleError(f"the pickle is longer than {limits.input} bytes", limits.input)
    if len(data) < 2 or data[0] != 0x80 or not 2 <= data[1] <= 5:
        raise PlainPickleError("no pickle of protocol 2 to 5 starts like this", 0)
    machine = _Machine(limits)
    place = 0
    try:
        for number, (opcode, arg, at) in enumerate(genops(data)):
            place = at or 0
            if number > limits.operations:
                raise ValueError(f"more than {limits.operations} operations")
            if not partly and opcode.name == "FRAME" and (arg or 0) > len(data) - place - 9:
                raise ValueError("a frame reaches beyond the end")  # which shows a cut file
            if number and opcode.name not in ("STOP", "FRAME"):
                machine.step(opcode.name, arg)
        if place + 1 != len(data) or len(machine.stack) != 1 or machine.marks:
            raise ValueError("STOP is not at the end, or does not find one item")
        _Measure(limits).of(machine.stack[0])
    except (ValueError, struct.error) as error:
        found = machine.whole_items() if partly else {}
        if not found:
            raise PlainPickleError(str(error), place) from None
        return found
    except MemoryError:
        raise PlainPickleError("this machine has not the memory to read on", place) from None
    return machine.stack[0]


class _Machine:
    """A stack, the marks in it, and the memo. Nothing pops below the topmost mark. Raises ValueErrors."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}
        self.memory, self.keys = limits.memory, limits.keys

    def whole_items(self) -> dict[object, object]:
        """The items of the outermost dict that are complete: on the stack, behind the first mark."""
        end = self.marks[1] - 1 if len(self.marks) > 1 else len(self.stack) - 1
        start = self.marks[0] if self.marks else 1
        items = self.stack[start : start + (max(0, end - start) & ~1)]
        try:
            _Measure(self.limits).of(items)
        except ValueError:
            return {}
        return {key: value for key, value in zip(items[::2], items[1::2], strict=True) if type(key) is str}

    def step(self, name: str, arg: Any) -> None:
        """Run one opcode."""
        if name in _VALUES:
            self.value(arg)
        elif name in _PUTS:
            self.memo[len(self.memo) if name == "MEMOIZE" else arg] = self.top(object)
            if len(self.memo) > self.limits.memo:
                raise ValueError(f"more than {self.limits.memo} values are remembered")
        elif name in _GETS:
            if arg not in self.memo:
                raise ValueError(f"nothing was remembered as {arg}")
            self.stack.append(self.memo[arg])
        elif name in _TAKES:
            self.build(name, self.take(_TAKES[name]))
        elif name == "MARK":
            self.marks.append(len(self.stack))
        elif name in _EMPTY:
            self.push(_EMPTY[name]())
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        else:  # GLOBAL, REDUCE, BUILD, persistent ids, extensions, buffers, sets, and the opcodes of protocol 0
            raise ValueError(f"{name} builds more than plain data")
        if len(self.stack) + len(self.marks) > self.limits.stack:
            raise ValueError(f"more than {self.limits.stack} items wait on the stack")

    def value(self, arg: Any) -> None:
        if isinstance(arg, str | bytes) and len(arg) > self.limits.string:
            raise ValueError(f"a string of {len(arg)} bytes")
        if isinstance(arg, int) and arg.bit_length() > 8 * self.limits.long:
            raise ValueError(f"an integer of {arg.bit_length()} bits")
        self.push(arg)

    def push(self, value: Any) -> None:
        self.charge(sys.getsizeof(value) + 64)
        self.stack.append(value)

    def charge(self, cost: int) -> None:
        self.memory -= cost
        if self.memory < 0:
            raise ValueError(f"it would take more than {self.limits.memory >> 20} MiB of memory")

    def top(self, kind: type) -> Any:
        """The container that the next opcode fills. It was made here, so its type is exact."""
        floor = self.marks[-1] if self.marks else 0
        if len(self.stack) <= floor or (kind is not object and type(self.stack[-1]) is not kind):
            raise ValueError(f"there is no {kind.__name__} on the stack")
        return self.stack[-1]

    def take(self, count: int) -> list[Any]:
        """Remove `count` items; if it is 0, all above the topmost mark, and the mark."""
        floor = self.marks[-1] if self.marks else 0
        start = len(self.stack) - count if count else floor
        if start < floor or not (count or self.marks):
            raise ValueError("there are too few items on the stack, or no mark")
        if not count:
            self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def build(self, name: str, items: list[Any]) -> None:
        self.charge(_ITEM * len(items))
        if name.startswith("TUPLE"):
            self.push(tuple(items))
        elif name.startswith("APPEND"):
            self.top(list).extend(items)
        else:
            self.fill(self.top(dict), items)

    def fill(self, found: dict[object, object], items: list[Any]) -> None:
        """Put keys and values into a dict."""
        if len(items) % 2:
            raise ValueError("a key has no value")
        self.charge(_ENTRY * len(items) // 2)
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is not str:
                self.keys -= 1
                if type(key) is not int or self.keys < 0:
                    raise ValueError(f"a {type(key).__name__} as a key, or more than {self.limits.keys} integers")
            found[key] = value


class _Measure:
    """The size of a value. Raises ValueErrors on cycles, deep nesting, and shared parts that expand beyond bounds."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.done: dict[int, tuple[int, int]] = {}  # container -> its expanded size, its height
        self.path: set[int] = set()

    def of(self, value: Any) -> tuple[int, int]:
        """Return the number of leaves and the height."""
        if type(value) not in _CONTAINERS:
            return (1 + (len(value) >> 4) if isinstance(value, str | bytes) else 1), 0
        if known := self.done.get(id(value)):
            return known
        if id(value) in self.path:
            raise ValueError("a container holds itself")
        self.path.add(id(value))
        size = height = 1
        for child in chain.from_iterable(value.items()) if type(value) is dict else value:
            if len(self.path) + height > self.limits.nesting:
                raise ValueError(f"containers are nested more than {self.limits.nesting} deep")
            more, below = self.of(child)
            size, height = size + more, max(height, below + 1)
            if size > self.limits.expanded:
                raise ValueError(f"shared parts unfold to more than {self.limits.expanded} values")
        self.path.discard(id(value))
        self.done[id(value)] = (size, height)
        return size, height
