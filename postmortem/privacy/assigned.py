"""Names that are assigned a secret: `DB_PASSWORD=…`, `"signingKey": "…"`, `--hub-token …`, `pass: …`.

Whether a value is a secret depends on the name. Any value of a *password* or an *api key* is one, unless it is a
placeholder. `key`, `token`, `auth` and `pass` are words of this trade (`pad_token`, `cache_key`, `auth=munge`,
`forward pass: 12 ms`): their value must also look like nothing but a secret. assigned.yaml has the regexes.
"""

from __future__ import annotations

import re
from functools import lru_cache

from postmortem.system import forms

_REGEXES = forms.regexes("privacy/assigned")
NEAR_VALUE, ASSIGNED, FLAG = (_REGEXES[name] for name in ("near-value", "assigned", "flag"))
SECRET_FLAG, TOKEN, PROSE = (_REGEXES[name] for name in ("secret-flag", "token", "prose"))
_HARMLESS, _NUMBER, _NO_VALUE = (_REGEXES[name] for name in ("harmless", "number", "no-value"))
_PATH, _PUBLIC_OWNER = _REGEXES["path"], _REGEXES["public-owner"]
_VALUE_END, _SEPARATOR = re.compile("[,;&)}\\]]"), re.compile("[_.:/@+=-]")
NAME_PARTS = ("pass", "secret", "key", "token", "pwd", "auth", "cred")  # one is in each name that NEAR_VALUE finds


@lru_cache(maxsize=4096)
def secret_key(key: str) -> bool:
    """Whether a key of a document is named like a secret."""
    return _REGEXES["secret-key"].search(key) is not None


def harmless(value: str, name: str, bare: bool = False) -> bool:
    """Whether a value is a placeholder, code, or another name. `bare`: it has no quotes."""
    if _HARMLESS.fullmatch(value) or len(value) < 3:
        return True
    if bare and (_REGEXES["code"].fullmatch(value) or _HARMLESS.fullmatch(_VALUE_END.split(value, maxsplit=1)[0])):
        return True
    if "token" in name.lower() and _REGEXES["token-of-model"].fullmatch(value):
        return True
    if "private" in name.lower() and value.startswith(("/", "./", "~")):
        return True
    return bare and value.lower().replace("-", "_") in name.lower().replace("-", "_")


def odd(value: str) -> bool:
    """Whether a value is no word, number, path or identifier: `x7Kq-99zT` is, `layer_3`, `12.5ms` and
    `SCRAM-SHA-256` are not."""
    if len(value) < 6 or _NUMBER.fullmatch(value) or _NO_VALUE.search(value):
        return False
    if _PATH.fullmatch(value) and (value.startswith("/") or not _REGEXES["base64"].fullmatch(value)):
        return False  # base64 may have slashes, and then has no dots or words
    words = all(map(_REGEXES["piece"].fullmatch, _SEPARATOR.split(value)))
    if not any(map(str.isdigit, value)):
        mixed = value.lower() != value != value.upper() and not words
        return mixed and (len(value) >= 20 or any(c in "!#$%^*+~&" for c in value))
    return not words or (len(value) >= 16 and _REGEXES["hex"].fullmatch(value) is not None)


def is_secret(word: str, before: str, value: str, name: str, bare: bool) -> bool:
    """Whether `value` is a secret. It is assigned to a name that ends with `word` and begins in `before`."""
    if harmless(value, name, bare):
        return False
    if _REGEXES["sure"].fullmatch(word):
        return True
    low, owner = word.lower(), before[-48:]
    if low.startswith("key"):
        if _REGEXES["owned-key"].search(owner):
            return not (owner.lower().rstrip("_-").endswith("private") and value.startswith(("/", "./", "~")))
        capitals = _REGEXES["capitals"].search(owner) and not _PUBLIC_OWNER.search(owner)
        known = _REGEXES["maybe-key"].search(owner) or capitals
        return bool(known) and len(value) >= 12 and odd(value)
    glued = owner[-1:].isalpha() and not (word[0].isupper() and owner[-1].islower())
    if low == "token":
        return _REGEXES["owned-token"].search(owner) is not None or (not glued and _is_token(owner, value))
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
