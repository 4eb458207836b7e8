"""The document's quantities that the page draws."""

from __future__ import annotations

from typing import TypedDict

from postmortem.model.contract.words import Count


class HeldMemory(TypedDict):
    """GPU memory that a line of code allocated."""

    code: str
    """`file:line function`"""
    bytes: Count
    """Of all its blocks"""


class GpuMemory(TypedDict):
    """A snapshot of the memory of a GPU."""

    rank: Count | None
    """The rank that took it"""
    gpu: str | None
    """Its number in the process"""
    source: str
    """`path` of the source that holds it"""
    reserved: Count
    """Bytes that PyTorch has of the driver"""
    allocated: Count
    """Bytes of them in blocks of tensors"""
    held: list[HeldMemory]
    """The lines of code that hold most, at most 10"""
