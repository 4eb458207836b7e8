"""The rules for secrets of a known form, and a quick check of which rules a text needs.

    needed(shape("wandb: key: ..."))  ->  Needs(private_key=False, rules=(63,), assigned=True)

secrets.yaml has the rules. Each is compiled at first use and tried only where one of its literals is: one large
alternation is 20 times slower.

Names that are assigned a secret (`DB_PASSWORD=…`, `"signingKey": "…"`, `--hub-token …`, `pass: …`): whether a value
is a secret depends on the name. Any value of a *password* or an *api key* is one, unless it is a placeholder. `key`,
`token`, `auth` and `pass` are words of this trade (`pad_token`, `cache_key`, `auth=munge`, `forward pass: 12 ms`):
their value must also look like nothing but a secret. assigned.yaml has the regexes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from postmortem.system import forms, lazy

_FORMS = forms.regexes("privacy/assigned")
NEAR_VALUE, ASSIGNED, FLAG = (_FORMS[name] for name in ("near-value", "assigned", "flag"))
SECRET_FLAG, TOKEN, PROSE = (_FORMS[name] for name in ("secret-flag", "token", "prose"))
_HARMLESS, _NUMBER, _NO_VALUE = (_FORMS[name] for name in ("harmless", "number", "no-value"))
_PATH, _PUBLIC_OWNER = _FORMS["path"], _FORMS["public-owner"]
_VALUE_END, _SEPARATOR = re.compile("[,;&)}\\]]"), re.compile("[_.:/@+=-]")
NAME_PARTS = ("pass", "secret", "key", "token", "pwd", "auth", "cred")  # one is in each name that NEAR_VALUE finds


@lru_cache(maxsize=4096)
def secret_key(key: str) -> bool:
    """Whether a key of a document is named like a secret."""
    return _FORMS["secret-key"].search(key) is not None


def harmless(value: str, name: str, bare: bool = False) -> bool:
    """Whether a value is a placeholder, code, or another name. `bare`: it has no quotes."""
    if _HARMLESS.fullmatch(value) or len(value) < 3:
        return True
    if bare and (_FORMS["code"].fullmatch(value) or _HARMLESS.fullmatch(_VALUE_END.split(value, maxsplit=1)[0])):
        return True
    if "token" in name.lower() and _FORMS["token-of-model"].fullmatch(value):
        return True
    if "private" in name.lower() and value.startswith(("/", "./", "~")):
        return True
    return bare and value.lower().replace("-", "_") in name.lower().replace("-", "_")


def odd(value: str) -> bool:
    """Whether a value is no word, number, path or identifier: `x7Kq-99zT` is, `layer_3`, `12.5ms` and
    `SCRAM-SHA-256` are not."""
    if len(value) < 6 or _NUMBER.fullmatch(value) or _NO_VALUE.search(value):
        return False
    if _PATH.fullmatch(value) and (value.startswith("/") or not _FORMS["base64"].fullmatch(value)):
        return False  # base64 may have slashes, and then has no dots or words
    words = all(map(_FORMS["piece"].fullmatch, _SEPARATOR.split(value)))
    if not any(map(str.isdigit, value)):
        mixed = value.lower() != value != value.upper() and not words
        return mixed and (len(value) >= 20 or any(c in "!#$%^*+~&" for c in value))
    return not words or (len(value) >= 16 and _FORMS["hex"].fullmatch(value) is not None)


def is_secret(word: str, before: str, value: str, name: str, bare: bool) -> bool:
    """Whether `value` is a secret. It is assigned to a name that ends with `word` and begins in `before`."""
    if harmless(value, name, bare):
        return False
    if _FORMS["sure"].fullmatch(word):
        return True
    low, owner = word.lower(), before[-48:]
    if low.startswith("key"):
        if _FORMS["owned-key"].search(owner):
            return not (owner.lower().rstrip("_-").endswith("private") and value.startswith(("/", "./", "~")))
        capitals = _FORMS["capitals"].search(owner) and not _PUBLIC_OWNER.search(owner)
        known = _FORMS["maybe-key"].search(owner) or capitals
        return bool(known) and len(value) >= 12 and odd(value)
    glued = owner[-1:].isalpha() and not (word[0].isupper() and owner[-1].islower())
    if low == "token":
        return _FORMS["owned-token"].search(owner) is not None or (not glued and _is_token(owner, value))
    return _is_weak_secret(low, owner, value, glued)


def is_flagged(word: str, before: str, value: str, name: str, bare: bool) -> bool:
    """The same after a flag like `--hub-token`: a count of tokens has no flag of just that name."""
    if is_secret(word, before, value, name, bare):
        return True
    return word.lower().endswith("token") and not harmless(value, name, bare)


def _is_token(owner: str, value: str) -> bool:
    """Whether it is a token of an owner who is not known to issue tokens."""
    if not owner[-2:-1].isalnum() and owner[-1:] != "/":
        return False
    least = {"_": 8, "-": 8, ".": 8, "/": 20}.get(owner[-1:], 0)
    return bool(least) and not _PUBLIC_OWNER.search(owner) and len(value) >= least and odd(value)


def _is_weak_secret(word: str, owner: str, value: str, glued: bool) -> bool:
    """Whether a value of `pwd`, `pass`, `auth` or `credentials` is a secret."""
    plain = _PATH.fullmatch(value) or _NUMBER.fullmatch(value)
    if word == "pwd":
        return not (plain or _NO_VALUE.search(value) or owner.upper().endswith("OLD"))
    if word == "pass" and owner[-1:] in ("_", "-", ".") and not _PUBLIC_OWNER.search(owner):
        return not (plain or _NO_VALUE.search(value) or value.isalpha())
    if glued:
        return word == "pass" and owner.lower().endswith(("ssh", "bind", "db", "sudo", "become")) and odd(value)
    return not _PUBLIC_OWNER.search(owner) and odd(value)


# ── secrets of a known form ─────────────────────────────────────────────────────────────────────────────────

DIGITS = b"0123456789"
_NO_DIGITS = str.maketrans("", "", DIGITS.decode())
WORD_START = forms.regexes("privacy/secrets")["word-start"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One form of secret; secrets.yaml explains the fields. `word`: a secret is only where a word starts."""

    kind: str
    literals: tuple[str, ...]
    pattern: re.Pattern[str]
    odd: int
    word: bool
    issued: bool


class Needs(NamedTuple):
    """The searches that a text needs: for private keys, by these rules, and for names that are assigned a secret."""

    private_key: bool
    rules: tuple[int, ...]
    assigned: bool


def _rule(name: str, row: forms.Form) -> Rule:
    prefixes, literals, form = row.get("prefixes", "").split(), row.get("literals", ()), row["regex"]
    if prefixes:
        form = f"(?P<s>(?:{'|'.join(map(re.escape, prefixes))}){form})"
        literals = [prefix.lower() for prefix in prefixes]
    return Rule(
        kind=row.get("kind", name),
        literals=tuple(literals.split() if isinstance(literals, str) else literals),
        pattern=lazy.regex(form),
        odd=row.get("odd", 0),
        word=bool(prefixes) or row.get("word", False),
        issued=bool(prefixes) or row.get("issued", False),
    )


RULES = tuple(
    _rule(name, row) for name, row in forms.rows("privacy/secrets").items() if row.keys() & {"prefixes", "literals"}
)
ISSUED = tuple(rule for rule in RULES if rule.issued)
_LITERALS = tuple(
    (literal.translate(_NO_DIGITS), number) for number, rule in enumerate(RULES) for literal in rule.literals
)


def _tree(words: list[str]) -> str:
    """A regex for many words that shares their beginnings: three times as fast as a search for each."""
    heads: dict[str, list[str]] = {}
    for word in words:
        heads.setdefault(word[0], []).append(word[1:])
    branches = [re.escape(head) + ("" if "" in rests else _tree(rests)) for head, rests in sorted(heads.items())]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


_TREE = _tree(sorted({literal for literal, _ in _LITERALS}))
_ANY, _EACH = lazy.regex(_TREE), lazy.regex(f"(?=({_TREE}))")


@cache
def _by_head() -> dict[str, tuple[tuple[str, int], ...]]:
    """The literals and their rules by the match of `_EACH`, which is the shortest word of a branch."""
    heads = {m[1] for literal, _ in _LITERALS if (m := _EACH.match(literal))}
    return {head: tuple(x for x in _LITERALS if x[0].startswith(head)) for head in heads}


def _rules(text: str, start: int) -> tuple[int, ...]:
    heads = {m[1] for m in _EACH.finditer(text, start)}
    found = {number for head in heads for literal, number in _by_head()[head] if literal == head or literal in text}
    return tuple(sorted(found))


def shape(text: str) -> bytes:
    """The text in lower case without digits: lines of thousands of ranks differ in their digits only."""
    return text.lower().encode("utf-8", "surrogatepass").translate(None, DIGITS)


def needed(shape: bytes) -> Needs | None:
    """Return the searches that a text of this shape needs; None where it needs none."""
    text = shape.decode("utf-8", "surrogatepass")
    first = _ANY.search(text)
    rules = _rules(text, first.start()) if first else ()
    assigned = any(word in text for word in NAME_PARTS) and NEAR_VALUE.search(text) is not None
    found = Needs("private key" in text, rules, assigned)
    return found if any(found) else None


cached_needed = lru_cache(maxsize=8192)(needed)


# ── private keys in PEM, of which a log may show only a part ────────────────────────────────────────────────

_REGEXES = forms.regexes("privacy/pem")
KEY_BEGIN, KEY_END, KEY_LONE = (_REGEXES[name] for name in ("begin", "end", "lone"))
LONE_LENGTH = 64
MAX_LINES = 400  # an RSA-16384 key has 200
_NOT_LONE = frozenset(" \t:.,;()[]{}<>'\"_-=")


def may_have_lone(text: str) -> bool:
    """A quick check for LONE: most lines of a log have a blank among their last 64 characters."""
    if "\n" in text:
        return any(map(_may_be_lone, text.split("\n")))
    return " " not in text[-LONE_LENGTH:] and _may_be_lone(text)


def _may_be_lone(text: str) -> bool:
    return len(text) >= LONE_LENGTH and _NOT_LONE.isdisjoint(text[-LONE_LENGTH:].rstrip())


def key_body_end(lines: list[str], at: int) -> int:
    """Return the line after a key's body: the END line, or the first line that does not look like a key."""
    for end in range(at, min(at + MAX_LINES, len(lines))):
        if KEY_END.search(lines[end]):
            return end
    while at < len(lines) and (_is_body(lines[at]) or _REGEXES["header"].match(lines[at]) or not lines[at].strip()):
        at += 1
    return at


def key_body_start(lines: list[str], end: int) -> int:
    """Return the first line of a key's body whose BEGIN line is cut off. Its last line may be short."""
    at = end
    while at > max(0, end - MAX_LINES):
        if not (_is_body(lines[at - 1]) or (at == end and _REGEXES["tail"].search(lines[at - 1]))):
            break
        at -= 1
    return at


def _is_body(line: str) -> bool:
    return _REGEXES["body"].search(line) is not None
