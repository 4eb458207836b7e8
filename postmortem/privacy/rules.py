"""What a secret looks like: the providers' own forms, and the words that stand before a secret.

    looked(b"wandb: key: ...")  ->  Look(key=False, rules=(14,), named=True)

There is no rule for "looks random": training logs are full of token counts, hashes, communicator ids and
commits. Rules are compiled one by one and tried only where one of their literals stands; one large
alternation is 20 times slower.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Rule:
    """One form of secret. `literals` are lower case, one of them stands in any text that matches.
    Group `s` is the secret."""

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
        (
            rf"(?:secret_?access_?key|(?:aws_?|x-amz-)?(?:session|security)"
            rf"[_-]?token){IS}(?P<s>[A-Za-z0-9/+=]{{30,4096}})"
        ),
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
        (
            r"(?<![A-Za-z0-9_-])(?P<s>sk-(?:(?:proj|svcacct|admin|None|or-v1)-[A-Za-z0-9_-]{20,255}"
            r"|[A-Za-z0-9]{32,255}))"
        ),
    ),
    _rule("wandb-key", "wandb_v1_", NOT_WORD + r"(?P<s>wandb_v1_[A-Za-z0-9_-]{20,255})"),
    # 40 hex digits are a git commit, unless Weights & Biases is spoken of in the same breath
    _rule(
        "wandb-key",
        "wandb",
        (
            r"(?:wandb|WANDB)[^\n]{0,60}?(?:key|KEY|login|password)[^\n0-9a-f]{1,12}(?P<s>[0-9a-f]{40})"
            r"(?![0-9a-f])"
        ),
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
        (
            r"[?&;](?:sig|signature|x-(?:amz|goog)-(?:signature|credential|security-token)|access_token"
            r"|api_?key)=(?P<s>[^&\s'\"<>\\]{6,4096})"
        ),
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
NAMED = ("pass", "secret", "key", "token")
# What ends a secret's name, and what may stand between it and its value:
# a cheap look before the three below, on lower case.
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
    rf"(?<![A-Za-z0-9_])(?i:token){IS}(?P<s>(?=[A-Za-z_+=-]{{0,255}}\d)(?=[\d_+=-]{{0,255}}[A-Za-z])"
    rf"[A-Za-z0-9_+=-]{{20,255}})(?![A-Za-z0-9_.:/(\[])"
)
# What stands where a secret would, and is none: types, code, placeholders, other names.
HARMLESS = re.compile(
    r"(?i:none|null|nil|true|false|yes|no|str|string|int|bool|bytes|any|optional|required|unset|empty"
    r"|undefined|default|redacted|\*+|x{3,}|\.{3}"
    r"|<[^>]*>?|`.*|\$\{?\w+\}?|%\w?|\{+\w*\}*|\[REDACTED:.*|-{1,2}[a-z][\w-]*)\.?"
)
CODE = re.compile(
    r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*[\[(].*|(?:self|args|cls|config|cfg|os|settings|opt|opts|kwargs|params"
    r"|env|options)\.\w[\w.]*"
)
PROSE = re.compile(r" [a-z]+(?:[ .,]|$)")  # "password: must not be empty"
SECRET_KEY = re.compile(rf"(?i)(?:^|[._-]|(?<=[a-z]))(?:{SECRET_WORD})$")


class Look(NamedTuple):
    """What a text is to be searched for."""

    key: bool
    rules: tuple[int, ...]
    named: bool


def looked(shape: bytes) -> Look | None:
    """What to search a text for, by the text in lower case and without digits; None: nothing.

    What a rule looks for has letters, and lines of thousands of ranks differ in their digits only:
    they are looked at once.
    """
    text = shape.decode("utf-8", "surrogatepass")
    rules = tuple(sorted({number for literal, number in _LITERALS if literal in text}))
    look = Look(
        "private key" in text,
        rules,
        any(word in text for word in NAMED) and NEAR_VALUE.search(text) is not None,
    )
    return look if any(look) else None


looked_once = lru_cache(maxsize=8192)(looked)


@lru_cache(maxsize=4096)
def secret_key(key: str) -> bool:
    return SECRET_KEY.search(key) is not None


def harmless(value: str, name: str, bare: bool = False) -> bool:
    if HARMLESS.fullmatch(value) or len(value) < 3:
        return True
    if bare and CODE.fullmatch(value):
        return True
    if "token" in name.lower() and re.fullmatch(r"[\d.,_eE+-]+|[<\[|].*|</.*", value):
        return True
    if "private" in name.lower() and value.startswith(("/", "./", "~")):
        return True
    return bare and value.lower().replace("-", "_") in name.lower().replace("-", "_")
