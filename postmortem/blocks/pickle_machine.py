"""The machine that `plain_pickle` reads with: a stack, marks and a memo, each step at its price.

It knows no opcode: those are functions that it is given. What was built is measured before it is handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    # parts of keys other than text: their hashes are known, so they can be made to collide
    keys: int = 10_000


LIMITS = Limits()
_STOP = 0x2E
_SLICE = 1000  # operations between two looks at the stack
_CONTAINERS = frozenset((list, tuple, dict, set, frozenset))
_HASHABLE = frozenset((int, float, bool, type(None), str, bytes))
LIST, DICT, SET, TUPLE = 160, 400, 400, 160  # bytes for an empty one and for measuring it
ITEM, ENTRY = 10, 110  # bytes for one more element of a list, of a dict or set


class Machine:
    """A stack, the marks in it, and the memo.
    `floor` is the height of the topmost mark: nothing pops below it."""

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

    def run(self, table: Sequence[Callable[[Machine], None]]) -> object:
        """Do what each byte of the table stands for, until STOP."""
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
                table[code](self)
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
                    f"more than {self.limits.keys} keys that are not text, or one nested more "
                    f"than {self.limits.nesting} deep"
                )
            if isinstance(part, tuple | frozenset):
                if len(part) > self.keys:
                    raise self.error(f"more than {self.limits.keys} keys that are not text")
                todo.extend((p, depth + 1) for p in part)
            elif type(part) not in _HASHABLE:
                raise self.error(f"a {type(part).__name__} cannot be a key")
        return value


def measure(root: object, limits: Limits, end: int) -> None:
    """Refuse what a walk would not survive:
    cycles, deep nesting, and shared parts that expand beyond all bounds."""
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
        self.rest: Iterator[object] = chain.from_iterable(value.items()) if type(value) is dict else iter(value)
        self.size = 1
        self.height = 1

    def add(self, size: int, height: int) -> None:
        self.size += size
        self.height = max(self.height, height + 1)
