"""Secrets out of everything that leaves: text -> the same text with marks where secrets stood.

    wandb: key: 0a1b...9f  ->  wandb: key: [REDACTED:wandb-key:1]

Marks are numbered by first appearance within their kind, so equal secrets stay linkable and the same input
gives the same bytes. What stands in a pickle or a core is never shown at all and needs no mark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from postmortem.privacy import named, pem
from postmortem.privacy.learnt import LEARNABLE, Learnt
from postmortem.privacy.look import DIGITS, Look, looked, looked_once, shape
from postmortem.privacy.named import (
    ASSIGNED,
    FLAG,
    NAMED,
    NEAR_VALUE,
    PROSE,
    SECRET_FLAG,
    TOKEN,
    harmless,
    secret_key,
)
from postmortem.privacy.rules import ISSUED, STARTS, Rule
from postmortem.privacy.tools import PROVIDERS

MARK = re.compile(r"\[REDACTED:[a-z0-9-]+:\d+\]")
KNOWN, KNOWN_TEXT = 200_000, 512
SHORTEST = 6  # characters of a secret that is looked for where it stands bare
LONGEST = 24  # characters of a name in front of its last word
NESTED = 16  # names within a value that turned out to be none of a secret's


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
        self._learnt = Learnt()
        self._found: list[str] = []  # secrets of the last texts, for who asks which they were
        self._known = _Known(self._text)

    def text(self, text: str) -> str:
        """Return a text without its secrets. Line ends stay where they are."""
        return self._known[text]

    def texts(self, texts: Sequence[str]) -> list[str]:
        """The same for many texts that are all different."""
        return list(map(self._text, texts))

    def _text(self, text: str) -> str:
        if self._learnt.marks:
            text = self._learnt.replaced(text)
        form = text.lower().encode("utf-8", "surrogatepass").translate(None, DIGITS)  # as `shape` does
        look = looked_once(form) if len(text) <= KNOWN_TEXT else looked(form)
        if look:
            text = self._searched(text, look)
        if len(text) >= pem.LONE_LENGTH and pem.may_have_lone(text):
            text = self._apply("private-key", pem.LONE, text)
        return self._learnt.replaced(text) if self._learnt.marks else text

    def _searched(self, text: str, look: Look) -> str:
        if look.key:
            text = self._pem(text)
        if "\n" in text and look.rules:
            text = self._joined(text)
        for number in look.rules:
            text = self._ruled(PROVIDERS[number], text)
        return "\n".join(map(self._line, text.split("\n"))) if look.named else text

    def path(self, path: str) -> str:
        """The same for a path, part by part: a name that holds a secret does not swallow the names behind it.
        What is found is learnt, however short, for the sentences that quote the path."""
        if self._known[path] == path:
            return path
        self._found.clear()
        done = "/".join(self._text(part) for part in self._searched_whole(path).split("/"))
        for secret in self._found:
            if len(secret) >= SHORTEST:
                self._learn(secret, self._marks[secret])
        return done

    def found(self, text: str) -> list[str]:
        """The secrets of one text."""
        self._found.clear()
        self._text(text)
        return [*self._found]

    def marked(self, secret: str) -> str:
        """The mark of a secret that was found."""
        return self._marks[secret]

    def memory(self) -> list[tuple[str, str, bool]]:
        """Each secret with its mark, and whether it is looked for where it stands bare."""
        return [(secret, mark, secret in self._learnt) for secret, mark in self._marks.items()]

    def recall(self, memory: Iterable[tuple[str, str, bool]]) -> None:
        """Know the secrets of another one by the same marks."""
        for secret, mark, bare in memory:
            kind, _, number = mark.removeprefix("[REDACTED:").rstrip("]").rpartition(":")
            self._marks[secret] = mark
            self._counts[kind] = max(self._counts.get(kind, 0), int(number))
            if bare:
                self._learn(secret, mark)

    @property
    def learnt(self) -> int:
        """How many secrets are looked for where they stand bare."""
        return self._learnt.count

    def again(self, texts: Sequence[str]) -> list[str]:
        """The same texts without what was learnt since."""
        return list(map(self._learnt.replaced, texts))

    def _searched_whole(self, path: str) -> str:
        for rule in ISSUED:
            path = self._ruled(rule, path)
        return path

    def _joined(self, text: str) -> str:
        """Mark tokens that a terminal of fixed width broke over two lines: only together are they long
        enough."""
        lines = text.split("\n")
        for at in range(len(lines) - 1):
            tail, head = _LAST_RUN.search(lines[at]), _FIRST_RUN.match(lines[at + 1])
            if tail and head and (look := looked_once(shape(tail[0] + head["run"]))):
                self._join(lines, at, tail[0], head["run"], look)
        return "\n".join(lines)

    def _join(self, lines: list[str], at: int, tail: str, head: str, look: Look) -> None:
        for number in look.rules:
            if number >= len(ISSUED):
                return
            for m in PROVIDERS[number].pattern.finditer(tail + head):
                start, end = m.span("s")
                if start < len(tail) < end and STARTS.match(tail, start):
                    mark, split = (
                        self._mark(PROVIDERS[number].kind, m["s"]),
                        len(lines[at]) - len(tail) + start,
                    )
                    rest = lines[at + 1]
                    begin = rest.index(head)
                    stop = begin + end - len(tail)
                    lines[at] = lines[at][:split] + self._shown(mark, lines[at][split:])
                    lines[at + 1] = rest[:begin] + self._shown(mark, rest[begin:stop]) + rest[stop:]
                    return

    def document(self, document: object) -> object:
        """Return a JSON-like value of the same shape without secrets,
        in its strings and under names like `api_key`.

        Where a secret was learnt it is gone through again:
        that may stand bare in an earlier place than its name.
        """
        known = self._learnt.count
        cleaned = self._walk(document)
        return cleaned if self._learnt.count == known else self._walk(document)

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
        if key in ("source", "path"):
            return self.path(value)
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
                self._learn(secret, mark)
        self._found.append(secret)
        return mark

    def _learn(self, secret: str, mark: str) -> None:
        if secret not in self._learnt:
            self._learnt.add(secret, mark)
            self._known.clear()

    def _shown(self, mark: str, _part: str) -> str:
        """The mark in place of a part of the secret."""
        return mark

    def _apply(self, kind: str, pattern: re.Pattern[str], text: str, least: int = 0) -> str:
        def put(m: re.Match[str]) -> str:
            if least and (len(m["s"]) < least or not named.odd(m["s"])):
                return m[0]
            return _with(m, "s", self._mark(kind, m["s"]))

        return pattern.sub(put, text)

    def _ruled(self, rule: Rule, text: str) -> str:
        if not rule.word:
            return self._apply(rule.kind, rule.pattern, text, rule.odd)
        out: list[str] = []
        done = at = 0
        while m := rule.pattern.search(text, at):
            at = m.start() + 1
            if STARTS.match(text, m.start()):
                out += [text[done : m.start()], self._mark(rule.kind, m["s"])]
                done = at = m.end()
        return "".join([*out, text[done:]]) if out else text

    def _line(self, line: str) -> str:
        """Redact what is assigned to a secret's name.
        Line by line, because these names may stand anywhere and cost time."""
        lower = line.lower()
        near = NEAR_VALUE.search(lower) if any(word in lower for word in NAMED) else None
        if near is None:
            return line
        line = self._assigned(
            ASSIGNED, named.is_secret, line, max(0, near.start() - LONGEST) if len(lower) == len(line) else 0
        )
        if "-" in line:
            line = self._assigned(FLAG, named.is_flagged, line)
        return self._apply("token", TOKEN, line) if "token" in lower else line

    def _assigned(self, pattern: re.Pattern[str], secret: Callable[..., bool], line: str, at: int = 0) -> str:
        """Mark what is set to a secret's name. In a value that is none, another name may stand."""
        out: list[str] = []
        done = nested = end = 0
        while m := pattern.search(line, at):
            group = m.lastgroup or "bare"
            value, name = m[group], line[m.start() : m.start(group)]
            before, within = line[max(0, m.start("word") - 48) : m.start("word")], value
            if name.endswith("=") and "/" in before and _IN_PATH.search(before):
                within = _FIRST_PART.match(value)[0]  # type: ignore[index]  # it matches anything
                within = within if secret(m["word"], before, within, name, True) else value
            prose = name.endswith(": ") and value.isalpha() and value.islower() and PROSE.match(line, m.end())
            if not prose and secret(m["word"], before, within, name, group == "bare"):
                kind = "password" if "pass" in name.lower() else "secret"
                out += [line[done : m.start(group)], self._mark(kind, within)]
                done = at = m.start(group) + len(within)
                continue
            nested = nested + 1 if m.start() < end else 0
            end = max(end, m.end())
            at = m.end("word") if nested < NESTED else end
        return "".join([*out, line[done:]]) if out else line

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
                    lines[at] = re.sub(r"(\S+)(\s*)$", lambda m: self._shown(mark, m[1]) + m[2], lines[at])
        return end


_LAST_RUN = re.compile(r"[A-Za-z0-9_.+/=-]{4,300}$")
_FIRST_RUN = re.compile(r"(?:\[[\w ]{1,24}\]:? ?|[ \t|]{1,12})?(?P<run>[A-Za-z0-9_.+/=-]{2,300})")
_FIRST_PART = re.compile(r"[^/]{6,}(?=/)|.*")
_IN_PATH = re.compile(r"/[^\s/'\"]{0,40}$")


def _with(m: re.Match[str], group: str, new: str) -> str:
    """Return the match with one group replaced."""
    return m[0][: m.start(group) - m.start()] + new + m[0][m.end(group) - m.start() :]
