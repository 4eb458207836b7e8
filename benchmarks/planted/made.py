"""How secrets are made: random text over the alphabets and lengths that issuers document."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable

ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
B32 = string.ascii_uppercase + "234567"
URLSAFE = ALNUM + "-_"
B64 = ALNUM + "+/"
SYMBOLS = "!#$%*+-._~^"
BREAKING = ",;&)"  # what ends an unquoted value for most readers, and stands in passwords all the same

Make = Callable[[random.Random], str]


def some(prefix: str, n: int, alphabet: str = ALNUM, suffix: str = "") -> Make:
    return lambda r: prefix + "".join(r.choices(alphabet, k=n)) + suffix


def parts(*pieces: str | tuple[int, str]) -> Make:
    """Fixed text and random runs by turns: ("xoxb-", (12, digits), "-", (24, alnum))."""

    def make(r: random.Random) -> str:
        return "".join(p if isinstance(p, str) else "".join(r.choices(p[1], k=p[0])) for p in pieces)

    return make


def password(symbols: str = SYMBOLS, low: int = 9, high: int = 20) -> Make:
    """What a password manager makes: letters of both cases, digits, and a few other signs inside."""

    def make(r: random.Random) -> str:
        inner = [r.choice(string.ascii_lowercase), r.choice(string.ascii_uppercase), r.choice(string.digits)]
        inner += [r.choice(symbols)] if symbols else []
        inner += r.choices(ALNUM, k=r.randint(low, high) - len(inner) - 2)
        r.shuffle(inner)
        return r.choice(string.ascii_letters) + "".join(inner) + r.choice(ALNUM)

    return make


def b64(make: Make) -> Make:
    return lambda r: base64.b64encode(make(r).encode()).decode()


def jwt(r: random.Random) -> str:
    def part(said: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")

    return ".".join(
        [
            part({"alg": "RS256", "typ": "JWT"}),
            part({"sub": some("", 20)(r), "exp": 1795209228}),
            some("", 86, URLSAFE)(r),
        ]
    )


DIGITS = string.digits
UPPER = string.ascii_uppercase + DIGITS
uuid = parts((8, HEX), "-", (4, HEX), "-4", (3, HEX), "-a", (3, HEX), "-", (12, HEX))
STRONG = password()
PLAIN = password("")
LONG = some("", 40)
HEX32 = some("", 32, HEX)
HEX40 = some("", 40, HEX)

# by the names in `surroundings.yaml`
MAKERS: dict[str, Make] = {
    "password": STRONG,
    "plain password": PLAIN,
    "password for URLs": password("-._~"),
    "password for shells": password("!$*-._~"),
    "password with commas": password(BREAKING, 12, 18),
    "password in base64": b64(STRONG),
    "user and password in base64": b64(lambda r: "alice:" + STRONG(r)),
    "key in base64": b64(some("-----BEGIN EC PRIVATE KEY-----\n", 160, B64)),
    "30 letters and digits": some("", 30),
    "32 letters and digits": some("", 32),
    "40 letters and digits": LONG,
    "32 hex": HEX32,
    "40 hex": HEX40,
    "48 hex": some("", 48, HEX),
    "64 hex": some("", 64, HEX),
    "512 hex": some("", 512, HEX),
    "40 of base64": some("", 40, B64),
    "40 of base64 for URLs": some("", 40, URLSAFE),
    "68 of base64 for URLs": some("", 68, URLSAFE),
    "uuid": uuid,
    "jwt": jwt,
    "AWS session": some("FwoGZXIvYXdzE", 300, B64),
    "Azure account key": some("", 86, B64, "=="),
    "signature in a URL": some("", 43, ALNUM, "%3D"),
    "kubeadm token": parts((6, string.ascii_lowercase + DIGITS), ".", (16, string.ascii_lowercase + DIGITS)),
    "Slack hook": parts("T", (8, UPPER), "/B", (8, UPPER), "/", (24, ALNUM)),
}
