"""Secrets removed from all output: text -> the same text with marks in place of secrets.

    wandb: key: 0a1b...9f  ->  wandb: key: [REDACTED:wandb-key:1]

Marks are numbered by first appearance within their kind, so equal secrets stay linkable and the same input gives the
same bytes. The content of a pickle or a core is never shown and needs no mark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from postmortem.privacy import rules
from postmortem.privacy.rules import ISSUED, RULES, WORD_START, Needs, Rule, cached_needed, harmless, secret_key, shape

KNOWN, KNOWN_TEXT = 200_000, 512
LONGEST = 24  # characters of a name in front of its last word
NESTED = 16  # names within a value that turned out to be no secret
_LAST_RUN = re.compile(r"[A-Za-z0-9_.+/=-]{4,300}$")
_FIRST_RUN = re.compile(r"(?:\[[\w ]{1,24}\]:? ?|[ \t|]{1,12})?(?P<run>[A-Za-z0-9_.+/=-]{2,300})")
_FIRST_PART = re.compile(r"[^/]{6,}(?=/)|.*")
_IN_PATH = re.compile(r"/[^\s/'\"]{0,40}$")
_IN_MARK = re.compile(r"\[REDACTED:[a-z0-9-]*$")
_LAST_WORD = re.compile(r"(\S+)(\s*)$")


class _Known(dict[str, str]):
    """Texts and their redacted form since the last secret was learned: thousands of ranks write the same text."""

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
    """Replaces secrets by numbered marks. One for each report, so that a secret has the same mark throughout."""

    def __init__(self) -> None:
        self._marks: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._learned = Learned()
        self._found: list[str] = []  # secrets of the last texts
        self._known = _Known(self._text)

    def text(self, text: str) -> str:
        """Return a text without its secrets. Line ends stay where they are."""
        return self._known[text]

    def texts(self, texts: Sequence[str]) -> list[str]:
        """The same for many texts that are all different."""
        return list(map(self._text, texts))

    def _text(self, text: str) -> str:
        if self._learned.marks:
            text = self._learned.replaced(text)
        form = shape(text)
        needs = cached_needed(form) if len(text) <= KNOWN_TEXT else rules.needed(form)
        if needs:
            text = self._searched(text, needs)
        if len(text) >= rules.LONE_LENGTH and rules.may_have_lone(text):
            text = self._apply("private-key", rules.KEY_LONE, text)
        return self._learned.replaced(text) if self._learned.marks else text

    def _searched(self, text: str, needs: Needs) -> str:
        if needs.private_key:
            text = self._without_keys(text)
        if "\n" in text and needs.rules:
            text = self._joined(text)
        for number in needs.rules:
            text = self._ruled(RULES[number], text)
        return "\n".join(map(self._line, text.split("\n"))) if needs.assigned else text

    def path(self, path: str) -> str:
        """The same for a path, part by part: a name that holds a secret does not swallow the names behind it.
        Each secret is learned, however short, for the sentences that quote the path."""
        if self._known[path] == path:
            return path
        self._found.clear()
        whole = path
        for rule in ISSUED:
            whole = self._ruled(rule, whole)
        done = "/".join(self._text(part) for part in whole.split("/"))
        for secret in self._found:
            if len(secret) >= SHORTEST:
                self._learn(secret, self._marks[secret])
        return done

    def found(self, text: str) -> dict[str, str]:
        """Return the secrets of one text and their marks."""
        self._found.clear()
        self._text(text)
        return {secret: self._marks[secret] for secret in self._found}

    def memory(self) -> list[tuple[str, str, bool]]:
        """Return each secret, its mark, and whether it is searched for outside of its context."""
        return [(secret, mark, secret in self._learned.marks) for secret, mark in self._marks.items()]

    def recall(self, memory: Iterable[tuple[str, str, bool]]) -> None:
        """Use the marks of another redactor for its secrets."""
        for secret, mark, bare in memory:
            kind, _, number = mark.removeprefix("[REDACTED:").rstrip("]").rpartition(":")
            self._marks[secret] = mark
            self._counts[kind] = max(self._counts.get(kind, 0), int(number))
            if bare:
                self._learn(secret, mark)

    @property
    def learned(self) -> int:
        """The number of secrets that are searched for outside of their context."""
        return len(self._learned.marks)

    def again(self, texts: Sequence[str]) -> list[str]:
        """Return redacted texts without the secrets that were learned since."""
        return list(map(self._learned.replaced, texts)) if self._learned.marks else list(texts)

    def _joined(self, text: str) -> str:
        """Mark tokens that a terminal of fixed width broke over two lines: only together are they long enough."""
        lines = text.split("\n")
        for at in range(len(lines) - 1):
            tail, head = _LAST_RUN.search(lines[at]), _FIRST_RUN.match(lines[at + 1])
            if tail and head and (needs := cached_needed(shape(tail[0] + head["run"]))):
                self._join(lines, at, tail[0], head["run"], needs)
        return "\n".join(lines)

    def _join(self, lines: list[str], at: int, tail: str, head: str, needs: Needs) -> None:
        for rule in (RULES[number] for number in needs.rules if RULES[number].issued):
            for m in rule.pattern.finditer(tail + head):
                start, end = m.span("s")
                if start < len(tail) < end and WORD_START.match(tail, start):
                    mark, split = self._mark(rule.kind, m["s"]), len(lines[at]) - len(tail) + start
                    rest = lines[at + 1]
                    begin = rest.index(head)
                    stop = begin + end - len(tail)
                    lines[at] = lines[at][:split] + self._shown(mark, lines[at][split:])
                    lines[at + 1] = rest[:begin] + self._shown(mark, rest[begin:stop]) + rest[stop:]
                    return

    def document(self, document: object) -> object:
        """Return a JSON-like value of the same shape without secrets in its strings and under names like `api_key`.

        It is searched again if a secret was learned, which may be alone in an earlier place than its name.
        """
        known = self.learned
        cleaned = self._walk(document)
        return cleaned if self.learned == known else self._walk(document)

    def _walk(self, value: object) -> object:
        if isinstance(value, str):
            return self._known[value]
        if isinstance(value, Mapping):
            known = self._known
            return {
                known[key] if isinstance(key, str) else key: item
                if item is None or type(item) is int
                else self._field(key, item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            texts = all(isinstance(item, str) for item in value)
            return self._list(value) if texts else [self._walk(item) for item in value]
        return value

    def _field(self, key: object, value: object) -> object:
        if not isinstance(value, str):
            return self._walk(value)
        if key in ("source", "path"):
            return self.path(value)
        if isinstance(key, str) and secret_key(key) and not harmless(value, key):
            return self._mark(_kind(key), value)
        return self._known[value]

    def _list(self, lines: Sequence[str]) -> list[str]:
        """Redact lines that belong together (a context, an argument list) as one text: a key extends over several."""
        lines = [self._argument(lines[at - 1], line) if at else line for at, line in enumerate(lines)]
        counts = [line.count("\n") + 1 for line in lines]
        pieces = self.text("\n".join(lines)).split("\n")
        out, at = [], 0
        for count in counts:
            out.append("\n".join(pieces[at : at + count]))
            at += count
        return out

    def _argument(self, flag: str, value: str) -> str:
        """Redact the value of `--token` in an argument list."""
        if rules.SECRET_FLAG.fullmatch(flag) and not harmless(value, flag):
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
        if secret not in self._learned.marks:
            self._learned.add(secret, mark)
            self._known.clear()

    def _shown(self, mark: str, _part: str) -> str:
        return mark

    def _apply(self, kind: str, pattern: re.Pattern[str], text: str, least: int = 0) -> str:
        def put(m: re.Match[str]) -> str:
            if least and (len(m["s"]) < least or not rules.odd(m["s"])):
                return m[0]
            start, end = m.start("s") - m.start(), m.end("s") - m.start()
            return m[0][:start] + self._mark(kind, m["s"]) + m[0][end:]

        return pattern.sub(put, text)

    def _ruled(self, rule: Rule, text: str) -> str:
        if not rule.word:
            return self._apply(rule.kind, rule.pattern, text, rule.odd)
        out: list[str] = []
        done = at = 0
        while m := rule.pattern.search(text, at):
            at = m.start() + 1
            if WORD_START.match(text, m.start()):  # checked last, which is five times as fast
                out += [text[done : m.start()], self._mark(rule.kind, m["s"])]
                done = at = m.end()
        return "".join([*out, text[done:]]) if out else text

    def _line(self, line: str) -> str:
        """Redact the values of secret names. Line by line, because these names may be anywhere and cost time."""
        lower = line.lower()
        near = rules.NEAR_VALUE.search(lower) if any(word in lower for word in rules.NAME_PARTS) else None
        if near is None:
            return line
        start = max(0, near.start() - LONGEST) if len(lower) == len(line) else 0
        line = self._assigned(rules.ASSIGNED, rules.is_secret, line, start)
        if "-" in line:
            line = self._assigned(rules.FLAG, rules.is_flagged, line)
        return self._apply("token", rules.TOKEN, line) if "token" in lower else line

    def _assigned(self, pattern: re.Pattern[str], secret: Callable[..., bool], line: str, at: int = 0) -> str:
        """Mark the values of secret names. A value that is no secret may contain another name."""
        out: list[str] = []
        done = nested = end = 0
        while m := pattern.search(line, at):
            group = m.lastgroup or "bare"
            value, name = m[group], line[m.start() : m.start(group)]
            before, within = line[max(0, m.start("word") - 48) : m.start("word")], value
            if name.endswith("=") and "/" in before and _IN_PATH.search(before):
                within = _FIRST_PART.match(value)[0]  # type: ignore[index]  # it matches anything
                within = within if secret(m["word"], before, within, name, True) else value
            in_mark = "[REDACTED:" in before and _IN_MARK.search(before)  # `secret:100` of a mark is no assignment
            prose = name.endswith(": ") and value.isalpha() and value.islower()
            prose = prose and rules.PROSE.match(line, m.end()) is not None
            if not prose and not in_mark and secret(m["word"], before, within, name, group == "bare"):
                out += [line[done : m.start(group)], self._mark(_kind(name), within)]
                done = at = m.start(group) + len(within)
                continue
            nested = nested + 1 if m.start() < end else 0
            end = max(end, m.end())
            at = m.end("word") if nested < NESTED else end
        return "".join([*out, line[done:]]) if out else line

    def _without_keys(self, text: str) -> str:
        """Replace private keys, the words of all their lines by one mark. A key may begin or end outside the text."""
        lines = text.split("\n")
        at = 0
        while at < len(lines):
            line, begin = lines[at], rules.KEY_BEGIN.search(lines[at])
            end = rules.KEY_END.search(line, begin.end() if begin else 0)
            if begin and end:  # one line, its line ends written as two characters
                mark = self._mark("private-key", line[begin.end() : end.start()])
                lines[at] = line[: begin.end()] + mark + line[end.start() :]
            elif begin:
                at = self._key(lines, at + 1, rules.key_body_end(lines, at + 1))
                continue
            elif end:
                self._key(lines, rules.key_body_start(lines, at), at)
            at += 1
        return "\n".join(lines)

    def _key(self, lines: list[str], start: int, end: int) -> int:
        """Replace the last word of the lines; the rest is a prefix that a launcher put there."""
        words = [line.split()[-1] for line in lines[start:end] if line.strip()]
        if words and not all(MARK.fullmatch(word) for word in words):
            mark = self._mark("private-key", "\n".join(words))
            for at in range(start, end):
                if lines[at].strip():
                    lines[at] = _LAST_WORD.sub(lambda m: self._shown(mark, m[1]) + m[2], lines[at])
        return end


def _kind(name: str) -> str:
    return "password" if "pass" in name.lower() else "secret"


# ── secrets that were found where their context showed them ─────────────────────────────────────────────────

# A secret that was found behind its name is searched for elsewhere if it cannot be a word of the log.
LEARNABLE = re.compile(r"(?=.*\d)(?=.*[A-Za-z])\S{16,}")
MARK = re.compile(r"\[REDACTED:[a-z0-9-]+:\d+\]")
_MARKS = re.compile(f"({MARK.pattern})")
FEW = 64
HEAD = SHORTEST = 6  # characters of a secret that is searched for outside of its context


class Learned:
    """Secrets and their marks."""

    def __init__(self) -> None:
        self.marks: dict[str, str] = {}
        self._heads: dict[str, list[str]] = {}

    def add(self, secret: str, mark: str) -> None:
        self.marks[secret] = mark
        self._heads.setdefault(secret[:HEAD], []).append(secret)

    def replaced(self, text: str) -> str:
        """Return the text with marks in place of the secrets. A mark may contain one: `secret` was a password."""
        if len(self.marks) <= FEW and not any(secret in text for secret in self.marks):
            return text
        parts = _MARKS.split(text)
        parts[::2] = map(self._by_heads, parts[::2])
        return "".join(parts)

    def _by_heads(self, text: str) -> str:
        heads = self._heads
        out: list[str] = []
        done = at = 0
        while at <= len(text) - HEAD:
            found = heads.get(text[at : at + HEAD])
            secret = max((s for s in found if text.startswith(s, at)), key=len, default=None) if found else None
            if secret is None:
                at += 1
                continue
            out += [text[done:at], self.marks[secret]]
            done = at = at + len(secret)
        return "".join([*out, text[done:]]) if out else text
