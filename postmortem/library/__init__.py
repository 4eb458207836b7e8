"""The pattern library: the files under `patterns/`, read and checked;
and the tools behind `postmortem patterns` and `explain`.

    load()["kernel-oom-killed-process"].title

`read` and `cache` are what every analysis needs. The tools are imported by name: `lint` and `trial` check a
pattern file with the real scanner and the real parsers, and so stand above them; `catalogue`, `skeleton` and
`schema` only read and write text.
"""

from postmortem.library.read import Library, Signature, load, parse, shipped

__all__ = ["Library", "Signature", "load", "parse", "shipped"]
