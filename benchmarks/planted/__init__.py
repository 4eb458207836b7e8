"""Secrets to plant, made from the providers' and tools' public formats, and the lines that they stand in.

    for plant in plants(seed=1, count=1000): plant.kind, plant.secret, plant.text, plant.unseen

Nothing here comes from the rules of `postmortem.privacy`: a form says what the issuer documents (prefix,
length, alphabet), a surrounding is a line as a tool prints it. Of the surroundings of each kind every third
was *unseen*: no rule was tried on it before the rules were finished, nor on those of the later sets.
No secret here was ever valid.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from planted.bare import BARE, BARE_IN
from planted.made import MAKERS
from planted.several_lines import MANY_LINES

_OF_ISSUERS = {"token of an issuer": lambda r: BARE[r.choice(sorted(BARE))](r)}
_SETS = {
    name: {kind: ((MAKERS | _OF_ISSUERS)[row["secret"]], row["in"]) for kind, row in kinds.items()}
    for name, kinds in yaml.safe_load((Path(__file__).parent / "surroundings.yaml").read_text()).items()
}
NAMED = _SETS.pop("named")
AFTER = {kind: row for kinds in _SETS.values() for kind, row in kinds.items()}  # written after the rules
KINDS = sorted([*BARE, *NAMED, *AFTER, *MANY_LINES])


class Plant(NamedTuple):
    kind: str
    secret: str
    text: str  # one line or more
    unseen: bool


def plants(seed: int = 1, count: int = 1000) -> Iterator[Plant]:
    """`count` secrets, all kinds by turns, each in a surrounding drawn for it."""
    r = random.Random(seed)
    for n in range(count):
        kind = KINDS[n % len(KINDS)]
        yield (_told(kind, r) if kind in MANY_LINES else _filled(kind, r))


def _told(kind: str, r: random.Random) -> Plant:
    secret, text = MANY_LINES[kind](r)
    return Plant(kind, secret, text, False)


def _filled(kind: str, r: random.Random) -> Plant:
    make, surroundings = (BARE[kind], BARE_IN) if kind in BARE else (NAMED | AFTER)[kind]
    place = r.randrange(len(surroundings))
    secret = make(r)
    unseen = place % 3 == 2 or kind in AFTER
    return Plant(kind, secret, surroundings[place].replace("{}", secret), unseen)


def leaked(secret: str, text: str, most: int = 7) -> bool:
    """Whether a part of the secret that is worth something is still to be read: more than `most` characters
    that are no public prefix, or half of a short one."""
    most = min(most, len(secret) // 2)
    tail = secret[12:] if len(secret) > 30 else secret  # the issuer's prefix tells nothing
    return any(tail[at : at + most + 1] in text for at in range(max(1, len(tail) - most)))
