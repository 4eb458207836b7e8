"""Names that are assigned a secret: `DB_PASSWORD=…`, `"signingKey": "…"`, `--hub-token …`, `pass: …`.

What stands for a secret depends on the name. Whatever a *password* or an *api key* is set to is one, unless
it is a placeholder. `key`, `token`, `auth` and `pass` are words of this trade (`pad_token`, `cache_key`,
`auth=munge`, `forward pass: 12 ms`): what they are set to has to look like nothing but a secret as well.
"""

from __future__ import annotations

import re
from functools import lru_cache

from postmortem.privacy.rules import IS, QUOTE
from postmortem.system import lazy as late

# `token` alone is a word of this trade (pad_token, max_tokens, token: 17):
# with one of these before it, it is a credential.
OWNERS = (
    "hf|hub|hugging_?face(?:_?hub)?|push_to_hub|auth|access|refresh|api|github|gitlab|gh|git|ci|wandb"
    "|bearer|bot|slack|service|join|secret"
    "|login|session|personal|registry|docker|vault|consul|npm|pypi|ngc|comet|neptune|clearml|oauth"
)
SECRET_WORD = (
    r"(?:password|passwd|passphrase|passcode|secret(?:[ _-]?key)?|api[ _-]?key|api[ _-]?secret"
    r"|access[ _-]?key(?:[_-]?id)?|private[_-]?key"
    rf"|(?:{OWNERS})[_-]?token|auth[_-]?key|account[_-]?key|encryption[_-]?key)"
)
# the words that end a secret's name, surest first
LAST_WORD = (
    r"(?:pass(?:words?|wd|phrase|code|w)?|pwd|secret(?:[ ._-]?(?:access[ ._-]?)?key)?"
    r"|(?:api|access)[ ._-]?key(?:[_-]?id)?|key(?:[_-]?base)?|token|auth|cred(?:ential)?s?)"
)
NAMED = ("pass", "secret", "key", "token", "pwd", "auth", "cred")
# What ends a secret's name, and what may stand between it and its value, or a flag of such a name:
# a cheap look before those below, on lower case.
_LOW = r"(?:pass(?:words?|wd|phrase|code|w)?|pwd|secret|key(?:[_-]?(?:id|base))?|token|auth|cred(?:ential)?s?)"
NEAR_VALUE = late.regex(
    rf"""{_LOW}["'\\]{{0,3}}\]?\s{{0,8}}[:=]|(?<![\w-])--?[a-z0-9._-]{{0,80}}?{_LOW}["'\\]{{0,3}},?[ \t]"""
)
# A comma, a bracket or a quote belongs to the value if it goes on, and no other name begins there.
_ON = r"""(?:[,;&)}\]](?=[^\s"',;&)}\]\\:=])|(?<=[A-Za-z0-9])["'](?=[A-Za-z0-9]))"""
_ON += r"(?![^\s:=]{0,200}[ \t]{0,8}[:=])"
_BARE = rf"""(?:[^\s"',;&)}}\]\\]|{_ON})"""
_ESCAPED = r"""\\(?:[^"'\n]|["'](?=[^\s,:;}\])"'\\]))"""  # of `\"` the one that ends no string
VALUE = (
    r"""(?:\\"(?P<ed>[^"\n\\]{1,4096})|\\'(?P<es>[^'\n\\]{1,4096})"""
    rf"""|b?"(?P<dq>(?:[^"\n\\]|{_ESCAPED}){{1,4096}})|b?'(?P<sq>(?:[^'\n\\]|{_ESCAPED}){{1,4096}})"""
    rf"""|(?P<bare>{_BARE}{{1,4096}}))"""
)
ASSIGNED = late.regex(
    rf"(?=[PSAKTCpsaktc])(?P<word>(?i:{LAST_WORD})){QUOTE}\]?"
    rf"[ \t]{{0,8}}(?::=|=>|[:=])[ \t]{{0,8}}(?!=){VALUE}"
)
FLAG = late.regex(
    rf"(?<![\w-])--?(?:[A-Za-z0-9]+[._-]){{0,5}}?(?P<word>(?i:(?:{OWNERS})[_-]?token|{LAST_WORD}))"
    rf"(?:=|{QUOTE},?[ \t]{{1,4}}){VALUE}"
)
SECRET_FLAG = late.regex(rf"(?i:--?(?:[a-z0-9]+[._-]){{0,4}}(?:{SECRET_WORD}|token|pwd|(?:[a-z0-9]+[._-])pass))")
# The bare word asks for a value that is nothing but a token: long, of letters and digits, no path, no number.
TOKEN = late.regex(
    rf"(?<![A-Za-z0-9_])(?i:token){IS}(?P<s>(?=[A-Za-z_+=-]{{0,255}}\d)(?=[\d_+=-]{{0,255}}[A-Za-z])"
    rf"[A-Za-z0-9_+=-]{{20,255}})(?![A-Za-z0-9_.:/(\[])"
)
# What stands where a secret would, and is none: types, code, placeholders, other names.
HARMLESS = late.regex(
    r"(?i:none|null|nil|true|false|yes|no|str|string|int|bool|bytes|any|optional|required|unset|empty"
    r"|undefined|default|redacted|\*+|x{3,}|\.{3}"
    r"|<[^>]*>?|`.*|\$\{?\w+\}?|%\w?|\{+\w*\}*|\[REDACTED:.*|-{1,2}[a-z][\w-]*)\.?"
)
CODE = late.regex(
    r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*[\[(].*|(?:self|args|cls|config|cfg|os|settings|opt|opts|kwargs|params"
    r"|env|options)\.\w[\w.]*"
)
PROSE = late.regex(r" [a-z]+(?:[ .,]|$)")  # "password: must not be empty"
SECRET_KEY = late.regex(
    rf"(?i)(?:^|[._-]|(?<=[a-z]))(?:{SECRET_WORD}|signing[_-]?key|auth[_-]?token|sudo_pass|db_pass|pwd)$"
)

_SURE = late.regex(r"(?i)pass(?:words?|wd|phrase|code|w)|secret.*|(?:api|access)[ ._-]?key.*")
_OWNER = late.regex(r"(?:[A-Za-z0-9]+[ ._-]?)*$")
_OWNED_TOKEN = late.regex(rf"(?i)(?:{OWNERS})[_-]?$")
_OWNED_KEY = late.regex(r"(?i)(?:private|auth|account|encryption)[_-]?$")
_MAYBE_KEY = late.regex(
    r"(?i)(?:wandb|kaggle|comet|openai|ngc|azure|aws|gcp|hf|signing|storage|master|hmac|shared|subscription|webhook|jwt|session|cookie|client|sas|deploy"
    r"|admin|service|app|rest|write|read|ingest|license|kms|fernet|aes|ssh|access|secret)[_.-]?$"
)
_CAPITALS = late.regex(r"(?:^|[^A-Za-z0-9_])(?:[A-Z][A-Z0-9]*_)+$")
# tokens and keys that are no secret
_PUBLIC_OWNER = late.regex(
    r"(?i)(?:^|[^a-zA-Z0-9]|(?-i:(?<=[a-z])(?=[A-Z])))(?:pad|eos|bos|unk|cls|sep|mask|image|img|audio|video|text|start|end|stop|begin|next"
    r"|last|first|prev|special|new|per|num|max|min|total|input|output|prompt|target|cache|sort|primary|public"
    r"|pub|foreign|partition|group|hash|index|dict|lookup|config|state|store|map|object|row|column|routing"
    r"|dedup|idempotency|comm|nccl|unique|by|missing|unexpected|extra|error|host|ssh_host|known|forward|backward"
    r"|second|single|multi|two|one|each|non|this|compile|fusion|by|tri|s|com|sur)[_. -]?$"
)
_NUMBER = late.regex(r"0x[0-9a-fA-F]+|[+-]?[\d.,:/%+xX-]*\d(?:e[+-]?\d+)?[A-Za-zµ%/]{0,9}")
_NO_VALUE = late.regex(r"""^[<\[({$%`|]|[\s'"{}<>]""")
_PIECE = late.regex(r"[A-Za-z]?[a-z]*\d{0,4}|[A-Z]{1,12}\d{0,4}|v?\d+[a-z]{0,2}|(?:[A-Z][a-z]+){1,6}\d{0,3}")
_PATH = late.regex(r"~.*|arn:.*|[\w.-]*/.*|\w+://.*|[A-Za-z]:\\.*|\.{1,2}$")


@lru_cache(maxsize=4096)
def secret_key(key: str) -> bool:
    return SECRET_KEY.search(key) is not None


def harmless(value: str, name: str, bare: bool = False) -> bool:
    if HARMLESS.fullmatch(value) or len(value) < 3:
        return True
    if bare and (CODE.fullmatch(value) or HARMLESS.fullmatch(re.split("[,;&)}\\]]", value, maxsplit=1)[0])):
        return True
    if "token" in name.lower() and re.fullmatch(r"[\d.,_eE+-]+|[<\[|].*|</.*", value):
        return True
    if "private" in name.lower() and value.startswith(("/", "./", "~")):
        return True
    return bare and value.lower().replace("-", "_") in name.lower().replace("-", "_")


def odd(value: str) -> bool:
    """Whether a value is no word, number, path or identifier: `x7Kq-99zT` is, `layer_3`, `12.5ms` and
    `SCRAM-SHA-256` are not."""
    if len(value) < 6 or _NUMBER.fullmatch(value) or _NO_VALUE.search(value):
        return False
    if _PATH.fullmatch(value) and not _long(value):
        return False
    words = all(map(_PIECE.fullmatch, re.split(r"[_.:/@+=-]", value)))
    if not any(map(str.isdigit, value)):
        mixed = value.lower() != value != value.upper() and not words
        return mixed and (len(value) >= 20 or any(c in "!#$%^*+~&" for c in value))
    return _hex(value) or not words


def _hex(value: str) -> bool:
    return len(value) >= 16 and re.fullmatch(r"[0-9a-f-]+|[a-z0-9]{20,}", value) is not None


def _long(value: str) -> bool:
    """Base64 may have slashes, and then has no dots nor words."""
    return re.fullmatch(r"[A-Za-z0-9+/]{20,}={0,2}", value) is not None and not value.startswith("/")


def is_secret(word: str, before: str, value: str, name: str, bare: bool) -> bool:
    """Whether `value` is a secret, being assigned to a name that ends with `word`, in a line that begins with
    `before`."""
    if harmless(value, name, bare):
        return False
    if _SURE.fullmatch(word):
        return True
    low, owner = word.lower(), before[-48:]
    if low.startswith("key"):
        return _key(owner, value)
    glued = owner[-1:].isalpha() and not (word[0].isupper() and owner[-1].islower())
    if low == "token":
        return _OWNED_TOKEN.search(owner) is not None or (not glued and _token(owner, value))
    return _weak(low, owner, value, glued)


def is_flagged(word: str, before: str, value: str, name: str, bare: bool) -> bool:
    """The same behind `--hub-token`: nobody counts tokens with a flag of just that name."""
    if is_secret(word, before, value, name, bare):
        return True
    return word.lower().endswith("token") and not harmless(value, name, bare)


def _key(owner: str, value: str) -> bool:
    if _OWNED_KEY.search(owner):
        return not (owner.lower().rstrip("_-").endswith("private") and value.startswith(("/", "./", "~")))
    known = _MAYBE_KEY.search(owner) or (_CAPITALS.search(owner) and not _PUBLIC_OWNER.search(owner))
    return bool(known) and len(value) >= 12 and odd(value)


def _token(owner: str, value: str) -> bool:
    """A token of somebody who is not known to give tokens."""
    if not owner[-2:-1].isalnum() and owner[-1:] != "/":
        return False
    least = {"_": 8, "-": 8, ".": 8, "/": 20}.get(owner[-1:], 0)
    return bool(least) and not _PUBLIC_OWNER.search(owner) and len(value) >= least and odd(value)


def _weak(word: str, owner: str, value: str, glued: bool) -> bool:
    """`pwd`, `pass`, `auth` and `credentials`."""
    plain = _PATH.fullmatch(value) or _NUMBER.fullmatch(value)
    if word == "pwd":
        return not (plain or _NO_VALUE.search(value) or owner.upper().endswith("OLD"))
    if word == "pass" and owner[-1:] in ("_", "-", ".") and not _PUBLIC_OWNER.search(owner):
        return not (plain or _NO_VALUE.search(value) or value.isalpha())
    if glued:
        return word == "pass" and owner.lower().endswith(("ssh", "bind", "db", "sudo", "become")) and odd(value)
    return not _PUBLIC_OWNER.search(owner) and odd(value)
