"""The pattern library: the files under `patterns/`, read and checked.

    load()["kernel-oom-killed-process"].title

The tools that check a pattern file with the real scanner and parsers are in `workshop`.
"""

from postmortem.library.read import Library, Signature, load, parse, shipped

__all__ = ["Library", "Signature", "load", "parse", "shipped"]
