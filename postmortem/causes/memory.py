"""Numbers in messages: GPU memory of an out-of-memory error, and two sizes of one collective.

    numbers("Tried to allocate 576.00 MiB. GPU 0 has … 153.81 MiB is free. … this process has 3.47 GiB …")
        ->  {"gpu-tried": 0.56, "gpu-free": 0.15, "gpu-own": 3.47}
    compared(88, 44)  ->  "item-ratio"        compared(1024, 960)  ->  "close"        compared(17416, 4)  ->  "far"

The wordings are those of c10/cuda/CUDACachingAllocator.cpp, of torch 1.x to 2.x.
"""

from __future__ import annotations

import math

from postmortem.model.digits import number
from postmortem.system import forms

UNITS = {"bytes": 2**-30, "KiB": 2**-20, "MiB": 2**-10, "GiB": 1.0}
CLOSE = 0.3  # of the larger size
ITEMS = (2, 4, 8)  # bytes: half and single, single and double precision


def numbers(text: str) -> dict[str, float]:
    """The sizes that a message states, in GiB; `gpu-unexplained` is that of others."""
    found = {}
    for name, regex in forms.regexes("causes/memory").items():
        if m := regex.search(text):
            found[name] = round(float(m["n"]) * UNITS[m["unit"]], 3)
    own = found.get("gpu-own", found.get("gpu-reserved"))
    if own is not None and "gpu-total" in found and "gpu-free" in found:
        found["gpu-unexplained"] = round(found["gpu-total"] - found["gpu-free"] - own, 3)
    return found


def compared(a: int, b: int) -> str:
    small, large = sorted((a, b))
    if small and any(large == small * item for item in ITEMS):
        return "item-ratio"
    return "close" if large and (large - small) / large <= CLOSE else "far"


def shapes(a: str, b: str) -> str:
    """Two shapes, `1, 4, 1435` and `1, 4, 1436`: those with other numbers of dimensions are of different calls."""
    x, y = ([number(n.strip()) or 0 for n in dims.split(",") if n.strip()] for dims in (a, b))
    if len(x) != len(y) or not x:
        return "far"
    return compared(math.prod(x), math.prod(y))


def elements(call: str) -> int | None:
    """The size in `ALLREDUCE #17 (12 elements, Float)`."""
    m = forms.regexes("causes/lines")["elements"].search(call)
    return number(m["n"].replace(",", "")) if m else None
