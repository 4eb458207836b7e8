"""Secrets that stand on several lines: keys in PEM, and tokens that a terminal broke."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from planted.bare import BARE
from planted.made import B64, parts

BODY = (64, B64)


def pem(r: random.Random) -> tuple[str, str]:
    """A key of 12 lines: whole, without its end, without its beginning, escaped on one line."""
    kind = r.choice(("RSA PRIVATE", "EC PRIVATE", "OPENSSH PRIVATE", "PRIVATE"))
    lines = [parts(BODY)(r) for _ in range(12)]
    whole = [f"-----BEGIN {kind} KEY-----", *lines, f"-----END {kind} KEY-----"]
    shown = r.choice((whole, whole[:9], whole[4:], ["[rank0]: " + line for line in whole]))
    if r.random() < 0.25:
        return lines[5], json.dumps({"type": "service_account", "private_key": "\n".join(whole)})
    return lines[5], "\n".join(shown)


def broken(r: random.Random) -> tuple[str, str]:
    """A token that a terminal of fixed width broke over two lines."""
    kind = r.choice(("hugging-face", "github-classic", "gitlab-personal", "anthropic", "nvidia", "xai", "groq"))
    secret = BARE[kind](r)
    line = f"requests.exceptions.HTTPError: 401 Client Error: Unauthorized for the given key {secret}"
    cut = len(line) - r.randint(4, len(secret) - 10)
    return secret, line[:cut] + "\n" + line[cut:] + " (try again)"


MANY_LINES: dict[str, Callable[[random.Random], tuple[str, str]]] = {
    "private-key": pem,
    "broken-token": broken,
}
