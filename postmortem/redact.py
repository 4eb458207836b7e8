"""Secrets out of everything that leaves: text -> the same text with marks where secrets stood.

    wandb: key: 0a1b...9f  ->  wandb: key: [REDACTED:wandb-key:1]

The rules know the providers' own forms, and the words that stand before a secret. There is no rule for "looks random":
training logs are full of token counts, hashes, communicator ids and commits. Rules are compiled one by one and tried only
where one of their literals stands; one large alternation is 20 times slower.

Marks are numbered by first appearance within their kind, so equal secrets stay linkable and the same input gives the
same bytes. What stands in a pickle or a core is never shown at all and needs no mark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

MARK = re.compile(r"\[REDACTED:[a-z0-9-]+:\d+\]")
# A secret learnt where its name stood is looked for elsewhere, if it is too odd to be a word of the log.
LEARNABLE = re.compile(r"(?=.*\d)(?=.*[A-Za-z])\S{16,}")


@dataclass(frozen=True, slots=True)
class Rule:
    """One form of secret. `literals` are lower case, one of them stands in any text that matches. Group `s` is the secret."""

    kind: str
    literals: tuple[str, ...]
    pattern: re.Pattern[str]


def _rule(kind: str, literals: str, pattern: str, flags: int = 0) -> Rule:
    return Rule(kind, tuple(literals.split()), re.compile(pattern, flags))


I = re.IGNORECASE  # noqa: E741  # the tables below read better with it
NOT_WORD = r"(?<![A-Za-z0-9])"
QUOTE = r"""["'\\]{0,3}"""  # nothing, a quote, or a quote that JSON or a shell escaped
IS = rf"{QUOTE}\s{{0,8}}(?:[:=]|=>)\s{{0,8}}{QUOTE}"

PROVIDERS: tuple[Rule, ...] = (
    _rule("hf-token", "hf_ api_org_", NOT_WORD + r"(?P<s>(?:hf|api_org)_[A-Za-z0-9]{30,200})"),
    _rule("aws-key-id", "akia asia", NOT_WORD + r"(?P<s>(?:AKIA|ASIA)[A-Z0-9]{16})(?![A-Za-z0-9])"),
    _rule(
        "aws-secret",
        "secret_access_key secretaccesskey session_token sessiontoken security-token",
        rf"(?:secret_?access_?key|(?:aws_?|x-amz-)?(?:session|security)[_-]?token){IS}(?P<s>[A-Za-z0-9/+=]{{30,4096}})",
        I,
    ),
    _rule("gcp-key", "aiza", NOT_WORD + r"(?P<s>AIza[A-Za-z0-9_-]{35})"),
    _rule("gcp-token", "ya29. gocspx-", NOT_WORD + r"(?P<s>(?:ya29\.|GOCSPX-)[A-Za-z0-9_-]{20,2048})"),
    _rule("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", NOT_WORD + r"(?P<s>gh[pousr]_[A-Za-z0-9]{30,255})"),
    _rule("github-token", "github_pat_", NOT_WORD + r"(?P<s>github_pat_[A-Za-z0-9_]{22,255})"),
    _rule(
        "gitlab-token",
        "glpat- gldt- glrt- glcbt- glptt- glsoat- gloas-",
        NOT_WORD + r"(?P<s>gl[a-z]{2,4}-[A-Za-z0-9_.-]{20,255})",
    ),
    _rule("anthropic-key", "sk-ant-", NOT_WORD + r"(?P<s>sk-ant-[A-Za-z0-9_-]{20,255})"),
    _rule(
        "openai-key",
        "sk-",
        r"(?<![A-Za-z0-9_-])(?P<s>sk-(?:(?:proj|svcacct|admin|None|or-v1)-[A-Za-z0-9_-]{20,255}|[A-Za-z0-9]{32,255}))",
    ),
    _rule("wandb-key", "wandb_v1_", NOT_WORD + r"(?P<s>wandb_v1_[A-Za-z0-9_-]{20,255})"),
    # 40 hex digits are a git commit, unless Weights & Biases is spoken of in the same breath
    _rule(
        "wandb-key",
        "wandb",
        r"(?:wandb|WANDB)[^\n]{0,60}?(?:key|KEY|login|password)[^\n0-9a-f]{1,12}(?P<s>[0-9a-f]{40})(?![0-9a-f])",
    ),
    _rule("service-key", "nvapi-", NOT_WORD + r"(?P<s>nvapi-[A-Za-z0-9_-]{40,255})"),
    _rule(
        "service-key",
        "npm_ dckr_pat_ pypi-ageichlwas5vcmc",
        NOT_WORD + r"(?P<s>(?:npm_|dckr_pat_|pypi-AgEIcHlwaS5vcmc)[A-Za-z0-9_-]{20,255})",
    ),
    _rule("service-key", "dapi", NOT_WORD + r"(?P<s>dapi[0-9a-f]{32}(?:-\d)?)(?![A-Za-z0-9])"),
    _rule("slack-token", "xox xapp-", NOT_WORD + r"(?P<s>(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,255})"),
    _rule(
        "slack-webhook",
        "hooks.slack.com",
        r"hooks\.slack\.com/(?:services|workflows)/(?P<s>[A-Za-z0-9_/+-]{20,255})",
    ),
    _rule("discord-webhook", "/api/webhooks/", r"/api/webhooks/\d{6,24}/(?P<s>[A-Za-z0-9_-]{20,255})"),
    _rule(
        "jwt",
        "eyj",
        NOT_WORD + r"(?P<s>eyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,8192}(?:\.[A-Za-z0-9_-]{0,4096}){0,3})",
    ),
    _rule(
        "url-password",
        "://",
        r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"<>]{0,128}:(?P<s>[^\s/@'\"<>]{1,256})@",
        I,
    ),
    _rule(
        "url-password",
        "://",
        r"\b[a-z][a-z0-9+.-]{1,20}://(?P<s>(?=[^\s/:@]{0,255}\d)[A-Za-z0-9_-]{20,255})@",
        I,
    ),
    _rule(
        "signed-url",
        "sig= signature= x-amz- x-goog- access_token= api_key= apikey=",
        r"[?&;](?:sig|signature|x-(?:amz|goog)-(?:signature|credential|security-token)|access_token|api_?key)=(?P<s>[^&\s'\"<>\\]{6,4096})",
        I,
    ),
    _rule(
        "azure-key",
        "accountkey= sharedaccess",
        r"(?:AccountKey|SharedAccessKey|SharedAccessSignature)=(?P<s>[^;\s'\"]{16,512})",
        I,
    ),
    _rule("bearer", "bearer", NOT_WORD + r"bearer\s{1,4}(?P<s>[A-Za-z0-9._~+/=-]{12,4096})", I),
    _rule(
        "authorization",
        "authorization",
        rf"authorization{IS}(?:basic|token|digest|apikey|key)\s{{1,4}}(?P<s>[^\s'\",;\\}}]{{6,4096}})",
        I,
    ),
    _rule(
        "authorization",
        "authorization",
        rf"authorization{IS}(?P<s>(?=[^\s'\"]{{0,4096}}\d)[^\s'\",;\\}}\[]{{12,4096}})",
        I,
    ),
    _rule(
        "api-key-header",
        "x-api-key private-token x-auth-token job-token",
        rf"(?:x-api-key|private-token|x-auth-token|job-token){IS}(?P<s>[^\s'\",;\\}}\[]{{8,4096}})",
        I,
    ),
)

DIGITS = "0123456789"
NO_DIGITS = str.maketrans("", "", DIGITS)
_LITERALS = tuple(
    (literal.translate(NO_DIGITS), number)
    for number, rule in enumerate(PROVIDERS)
    for literal in rule.literals
)

# `token` alone is a word of this trade (pad_token, max_tokens, token: 17): with one of these before it, it is a credential.
OWNERS = (
    "hf|hub|hugging_?face(?:_?hub)?|push_to_hub|auth|access|refresh|api|github|gitlab|gh|git|ci|wandb|bearer|bot|slack|service|join|secret"
    "|login|session|personal|registry|docker|vault|consul|npm|pypi|ngc|comet|neptune|clearml|oauth"
)
SECRET_WORD = (
    r"(?:password|passwd|passphrase|passcode|secret(?:[ _-]?key)?|api[ _-]?key|api[ _-]?secret|access[ _-]?key(?:[_-]?id)?|private[_-]?key"
    rf"|(?:{OWNERS})[_-]?token|auth[_-]?key|account[_-]?key|encryption[_-]?key)"
)
NAMED = ("pass", "secret", "key", "token")
# What ends a secret's name, and what may stand between it and its value: a cheap look before the three below, on lower case.
NEAR_VALUE = re.compile(
    r"""(?:pass(?:word|wd|phrase|code)|secret|key(?:[_-]?id)?|token)["'\\]{0,3}(?:\s{0,8}[:=]|,?[ \t])"""
)
VALUE = (
    r"""(?:\\?"(?P<dq>[^"\n\\]{1,4096})|\\?'(?P<sq>[^'\n\\]{1,4096})|(?P<bare>[^\s"',;&)}\]\\]{1,4096}))"""
)
ASSIGNED = re.compile(rf"(?i:{SECRET_WORD}){QUOTE}[ \t]{{0,8}}(?::=|=>|[:=])[ \t]{{0,8}}(?!=){VALUE}")
FLAG = re.compile(
    rf"(?<![\w-])(?i:--?(?:[a-z0-9]+[._-]){{0,4}}(?:{SECRET_WORD}|token))(?:=|{QUOTE},?[ \t]{{1,4}}){VALUE}"
)
SECRET_FLAG = re.compile(rf"(?i:--?(?:[a-z0-9]+[._-]){{0,4}}(?:{SECRET_WORD}|token))")
# The bare word asks for a value that is nothing but a token: long, of letters and digits, no path, no number.
TOKEN = re.compile(
    rf"(?<![A-Za-z0-9_])(?i:token){IS}(?P<s>(?=[A-Za-z_+=-]{{0,255}}\d)(?=[\d_+=-]{{0,255}}[A-Za-z])[A-Za-z0-9_+=-]{{20,255}})(?![A-Za-z0-9_.:/(\[])"
)
# What stands where a secret would, and is none: types, code, placeholders, other names.
HARMLESS = re.compile(
    r"(?i:none|null|nil|true|false|yes|no|str|string|int|bool|bytes|any|optional|required|unset|empty|undefined|default|redacted|\*+|x{3,}|\.{3}"
    r"|<[^>]*>?|`.*|\$\{?\w+\}?|%\w?|\{+\w*\}*|\[REDACTED:.*|-{1,2}[a-z][\w-]*)\.?"
)
CODE = re.compile(
    r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*[\[(].*|(?:self|args|cls|config|cfg|os|settings|opt|opts|kwargs|params|env|options)\.\w[\w.]*"
)
PROSE = re.compile(r" [a-z]+(?:[ .,]|$)")  # "password: must not be empty"
SECRET_KEY = re.compile(rf"(?i)(?:^|[._-]|(?<=[a-z]))(?:{SECRET_WORD})$")

PEM = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
PEM_BODY = re.compile(r"(?:^|[\s:>|\]])(?:[A-Za-z0-9+/]{16,}={0,2}|\[REDACTED:private-key:\d+\])\s*$")
PEM_TAIL = re.compile(r"(?:^|[\s:>|\]])[A-Za-z0-9+/]{1,64}={0,2}\s*$")
PEM_HEADER = re.compile(r"\s*(?:Proc-Type|DEK-Info|Version|Comment): ")
PEM_LINES = 400  # an RSA-16384 key has 200


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


class _Look(NamedTuple):
    """What a text is to be searched for."""

    key: bool
    rules: tuple[int, ...]
    named: bool


class Redactor:
    """Replaces secrets by numbered marks; one for each report, so that a secret has the same mark everywhere in it."""

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
        look = _look(shape) if len(text) <= KNOWN_TEXT else _looked(shape)
        if look:
            text = self._searched(text, look)
        for secret, mark in self._learnt.items():
            if secret in text:
                text = text.replace(secret, mark)
        return text

    def _searched(self, text: str, look: _Look) -> str:
        if look.key:
            text = self._pem(text)
        for number in look.rules:
            text = self._apply(PROVIDERS[number].kind, PROVIDERS[number].pattern, text)
        return "\n".join(map(self._line, text.split("\n"))) if look.named else text

    def document(self, document: object) -> object:
        """Return a JSON-like value of the same shape without secrets, in its strings and under names like `api_key`.

        Where a secret was learnt it is gone through again: that may stand bare in an earlier place than its name.
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
        if isinstance(key, str) and _secret_key(key) and not _harmless(value, key):
            return self._mark("password" if "pass" in key.lower() else "secret", value)
        return self._known[value]

    def _list(self, lines: Sequence[str]) -> list[str]:
        """Redact lines that belong together (a context, an argument list) as one text: a key goes over several of them."""
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
        if SECRET_FLAG.fullmatch(flag) and not _harmless(value, flag):
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
        """Redact what is assigned to a secret's name. Line by line, because these names may stand anywhere and cost time."""
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
        if prose or _harmless(value, name, bare=group == "bare"):
            return m[0]
        return _with(m, group, self._mark("password" if "pass" in name.lower() else "secret", value))

    def _pem(self, text: str) -> str:
        """Take private keys out, the words of all their lines for one mark; a key may begin or end outside the text."""
        lines = text.split("\n")
        at = 0
        while at < len(lines):
            line, begin = lines[at], PEM.search(lines[at])
            end = PEM_END.search(line, begin.end() if begin else 0)
            if begin and end:  # one line, its line ends written as two characters
                lines[at] = (
                    line[: begin.end()]
                    + self._mark("private-key", line[begin.end() : end.start()])
                    + line[end.start() :]
                )
            elif begin:
                at = self._key(lines, at + 1, _key_end(lines, at + 1))
                continue
            elif end:
                self._key(lines, _key_start(lines, at), at)
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


def _key_end(lines: list[str], at: int) -> int:
    """Return the line after a key's body: the END line if there is one, else where the lines stop to look like a key."""
    for end in range(at, min(at + PEM_LINES, len(lines))):
        if PEM_END.search(lines[end]):
            return end
    while at < len(lines) and (
        PEM_BODY.search(lines[at]) or PEM_HEADER.match(lines[at]) or not lines[at].strip()
    ):
        at += 1
    return at


def _key_start(lines: list[str], end: int) -> int:
    """Return the first line of a key's body whose BEGIN line is cut off. Its last line may be short."""
    at = end
    while at > max(0, end - PEM_LINES) and (
        PEM_BODY.search(lines[at - 1]) or (at == end and PEM_TAIL.search(lines[at - 1]))
    ):
        at -= 1
    return at


def _looked(shape: bytes) -> _Look | None:
    """What to search a text for, by the text in lower case and without digits; None: nothing.

    What a rule looks for has letters, and lines of thousands of ranks differ in their digits only: they are looked at once.
    """
    text = shape.decode("utf-8", "surrogatepass")
    rules = tuple(sorted({number for literal, number in _LITERALS if literal in text}))
    look = _Look(
        "private key" in text,
        rules,
        any(word in text for word in NAMED) and NEAR_VALUE.search(text) is not None,
    )
    return look if any(look) else None


_look = lru_cache(maxsize=8192)(_looked)


@lru_cache(maxsize=4096)
def _secret_key(key: str) -> bool:
    return SECRET_KEY.search(key) is not None


def _harmless(value: str, name: str, bare: bool = False) -> bool:
    if HARMLESS.fullmatch(value) or len(value) < 3:
        return True
    if bare and CODE.fullmatch(value):
        return True
    if "token" in name.lower() and re.fullmatch(r"[\d.,_eE+-]+|[<\[|].*|</.*", value):
        return True
    if "private" in name.lower() and value.startswith(("/", "./", "~")):
        return True
    return bare and value.lower().replace("-", "_") in name.lower().replace("-", "_")


def _with(m: re.Match[str], group: str, new: str) -> str:
    """Return the match with one group replaced."""
    return m[0][: m.start(group) - m.start()] + new + m[0][m.end(group) - m.start() :]
