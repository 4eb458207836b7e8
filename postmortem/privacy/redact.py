"""Secrets out of everything that leaves: text -> the same text with marks where secrets stood.

    wandb: key: 0a1b...9f  ->  wandb: key: [REDACTED:wandb-key:1]

Marks are numbered by first appearance within their kind, so equal secrets stay linkable and the same input
gives the same bytes. What stands in a pickle or a core is never shown at all and needs no mark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from postmortem.privacy import pem
from postmortem.privacy.rules import (
    ASSIGNED,
    DIGITS,
    FLAG,
    NAMED,
    NEAR_VALUE,
    PROSE,
    PROVIDERS,
    SECRET_FLAG,
    TOKEN,
    Look,
    harmless,
    looked,
    looked_once,
    secret_key,
)

MARK = re.compile(r"\[REDACTED:[a-z0-9-]+:\d+\]")
# A secret learnt where its name stood is looked for elsewhere, if it is too odd to be a word of the log.
LEARNABLE = re.compile(r"(?=.*\d)(?=.*[A-Za-z])\S{16,}")
KNOWN, KNOWN_TEXT = 200_000, 512


class _Known(dict[str, str]):
    """Texts and what they became since the last secret was learnt: thousands of ranks say the same."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact

    def __missing__(self, text: str) -> str:
        done = self._redact(text)
        if len(text) <= KNOWN_TEXT:
            if len(self) >= KNOWN:
                self.clear()
            self[text] = done
        return done


class Redactor:
    """Replaces secrets by numbered marks;
    one for each report, so that a secret has the same mark everywhere in it."""

    def __init__(self) -> None:
        self._marks: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._learnt: dict[str, str] = {}
        self._known = _Known(self._text)

    def text(self, text: str) -> str:
        """Return a text without its secrets. Line ends stay where they are."""
        return self._known[text]

    def texts(self, texts: Sequence[str]) -> list[str]:
        """The same for many texts that are all different."""
        return list(map(self._text, texts))

    def _text(self, text: str) -> str:
        shape = text.lower().encode("utf-8", "surrogatepass").translate(None, DIGITS.encode())
        look = looked_once(shape) if len(text) <= KNOWN_TEXT else looked(shape)
        if look:
            text = self._searched(text, look)
        for secret, mark in self._learnt.items():
            if secret in text:
                text = text.replace(secret, mark)
        return text

    def _searched(self, text: str, look: Look) -> str:
        if look.key:
            text = self._pem(text)
        for number in look.rules:
            text = self._apply(PROVIDERS[number].kind, PROVIDERS[number].pattern, text)
        return "\n".join(map(self._line, text.split("\n"))) if look.named else text

    def document(self, document: object) -> object:
        """Return a JSON-like value of the same shape without secrets,
        in its strings and under names like `api_key`.

        Where a secret was learnt it is gone through again:
        that may stand bare in an earlier place than its name.
        """
        known = len(self._learnt)
        cleaned = self._walk(document)
        return cleaned if len(self._learnt) == known else self._walk(document)

    def _walk(self, value: object) -> object:
        if isinstance(value, str):
            return self._known[value]
        if isinstance(value, dict):
            return self._mapping(value)
        if isinstance(value, (list, tuple)):
            return (
                self._list(value)
                if all(isinstance(item, str) for item in value)
                else [self._walk(item) for item in value]
            )
        return self._mapping(value) if isinstance(value, Mapping) else value

    def _mapping(self, value: Mapping[object, object]) -> dict[object, object]:
        known = self._known
        return {
            known[key] if isinstance(key, str) else key: item
            if item is None or type(item) is int
            else self._field(key, item)
            for key, item in value.items()
        }

    def _field(self, key: object, value: object) -> object:
        if not isinstance(value, str):
            return self._walk(value)
        if isinstance(key, str) and secret_key(key) and not harmless(value, key):
            return self._mark("password" if "pass" in key.lower() else "secret", value)
        return self._known[value]

    def _list(self, lines: Sequence[str]) -> list[str]:
        """Redact lines that belong together (a context, an argument list) as one text:
        a key goes over several of them."""
        lines = [self._argument(lines[at - 1], line) if at else line for at, line in enumerate(lines)]
        counts = [line.count("\n") + 1 for line in lines]
        pieces = self.text("\n".join(lines)).split("\n")
        out, at = [], 0
        for count in counts:
            out.append("\n".join(pieces[at : at + count]))
            at += count
        return out

    def _argument(self, flag: str, value: str) -> str:
        """Redact what follows `--token` in an argument list."""
        if SECRET_FLAG.fullmatch(flag) and not harmless(value, flag):
            return self._mark("secret", value)
        return value

    def _mark(self, kind: str, secret: str) -> str:
        if MARK.fullmatch(secret):
            return secret
        mark = self._marks.get(secret)
        if mark is None:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            mark = self._marks[secret] = f"[REDACTED:{kind}:{self._counts[kind]}]"
            if LEARNABLE.fullmatch(secret):
                self._learnt[secret] = mark
                self._known.clear()
        return mark

    def _apply(self, kind: str, pattern: re.Pattern[str], text: str) -> str:
        def put(m: re.Match[str]) -> str:
            return _with(m, "s", self._mark(kind, m["s"]))

        return pattern.sub(put, text)

    def _line(self, line: str) -> str:
        """Redact what is assigned to a secret's name.
        Line by line, because these names may stand anywhere and cost time."""
        lower = line.lower()
        if not any(word in lower for word in NAMED) or not NEAR_VALUE.search(lower):
            return line
        line = ASSIGNED.sub(self._assigned, line)
        if "-" in line:
            line = FLAG.sub(self._assigned, line)
        return self._apply("token", TOKEN, line) if "token" in lower else line

    def _assigned(self, m: re.Match[str]) -> str:
        group = m.lastgroup or "bare"
        value, name = m[group], m[0][: m.start(group) - m.start()]
        prose = name.endswith(": ") and value.isalpha() and value.islower() and PROSE.match(m.string, m.end())
        if prose or harmless(value, name, bare=group == "bare"):
            return m[0]
        return _with(m, group, self._mark("password" if "pass" in name.lower() else "secret", value))

    def _pem(self, text: str) -> str:
        """Take private keys out, the words of all their lines for one mark;
        a key may begin or end outside the text."""
        lines = text.split("\n")
        at = 0
        while at < len(lines):
            line, begin = lines[at], pem.BEGIN.search(lines[at])
            end = pem.END.search(line, begin.end() if begin else 0)
            if begin and end:  # one line, its line ends written as two characters
                lines[at] = (
                    line[: begin.end()]
                    + self._mark("private-key", line[begin.end() : end.start()])
                    + line[end.start() :]
                )
            elif begin:
                at = self._key(lines, at + 1, pem.body_end(lines, at + 1))
                continue
            elif end:
                self._key(lines, pem.body_start(lines, at), at)
            at += 1
        return "\n".join(lines)

    def _key(self, lines: list[str], start: int, end: int) -> int:
        """Replace the last word of the lines: what stands before it is a prefix that a launcher put there."""
        words = [line.split()[-1] for line in lines[start:end] if line.strip()]
        if words and not all(MARK.fullmatch(word) for word in words):
            mark = self._mark("private-key", "\n".join(words))
            for at in range(start, end):
                if lines[at].strip():
                    lines[at] = re.sub(r"\S+(\s*)$", lambda m: mark + m[1], lines[at])
        return end


def _with(m: re.Match[str], group: str, new: str) -> str:
    """Return the match with one group replaced."""
    return m[0][: m.start(group) - m.start()] + new + m[0][m.end(group) - m.start() :]
