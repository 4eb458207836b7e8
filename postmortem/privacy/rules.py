"""What a secret looks like by itself: the forms that providers give their keys, and where tools print one.

There is no rule for "looks random": training logs are full of token counts, hashes, communicator ids and
commits. Rules are compiled one by one and tried only where one of their literals stands; one large
alternation is 20 times slower. Names that are assigned a secret are in `named`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Rule:
    """One form of secret. `literals` are lower case, one of them stands in any text that matches.
    Group `s` is the secret."""

    kind: str
    literals: tuple[str, ...]
    form: str
    flags: int = 0
    odd: int = 0  # where a form says little: the secret has so many characters, and is no word (see `named.odd`)
    word: bool = False  # the secret stands where a word starts; asked last, which is five times as fast

    @property
    def pattern(self) -> re.Pattern[str]:
        """Compiled when first asked for: most logs have no secret of most kinds."""
        return _compiled(self.form, self.flags)


_compiled = lru_cache(maxsize=None)(re.compile)


def rule(kind: str, literals: str, pattern: str, flags: int = 0) -> Rule:
    """Literals with blanks between them; `+` stands for a blank in one."""
    return Rule(kind, tuple(word.replace("+", " ") for word in literals.split()), pattern, flags)


I = re.IGNORECASE  # noqa: E741  # the tables below read better with it
# Where a word starts: also behind `\n` and `%3D` as JSON and URLs write them, and behind a colour code.
START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2})|(?<=[0-9;\[]m)|(?<=\\u00[0-9a-f]{2}))"
STARTS = re.compile(START)
QUOTE = r"""["'\\]{0,3}"""  # nothing, a quote, or a quote that JSON or a shell escaped
IS = rf"{QUOTE}\s{{0,8}}(?:[:=]|=>)\s{{0,8}}b?{QUOTE}"


def _issued(kind: str, prefixes: str, rest: str, flags: int = 0) -> Rule:
    """What its issuer made recognisable: one of the prefixes, then `rest`."""
    words = prefixes.split()
    heads = "|".join(map(re.escape, words))
    form = f"(?P<s>(?:{heads}){rest})" if len(words) > 1 else f"(?P<s>{heads}{rest})"
    return Rule(kind, tuple(prefixes.lower().split()), form, flags, word=True)


WORD = "[A-Za-z0-9]"
SAFE = "[A-Za-z0-9_-]"  # base64 as URLs write it
ISSUED: tuple[Rule, ...] = (
    _issued("hf-token", "hf_ api_org_", WORD + "{30,200}"),
    _issued("aws-key-id", "AKIA ASIA ABIA ACCA", "[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _issued("gcp-key", "AIza", SAFE + "{35}"),
    _issued("gcp-token", "ya29. GOCSPX-", SAFE + "{20,2048}"),
    _issued("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", WORD + "{30,255}"),
    _issued("github-token", "github_pat_", "[A-Za-z0-9_]{22,255}"),
    _issued(
        "gitlab-token",
        "glpat- gldt- glrt- glrtr- glcbt- glptt- glsoat- gloas- glft- glagent- glffct- glimt-",
        "[A-Za-z0-9_.-]{20,255}",
    ),
    _issued("anthropic-key", "sk-ant-", SAFE + "{20,255}"),
    rule(
        "openai-key",
        "sk-",
        (
            r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt])|(?<=[0-9;\[]m))(?P<s>sk-(?:(?:proj|svcacct|admin|None|or-v1)-"
            r"[A-Za-z0-9_-]{20,255}|[A-Za-z0-9]{32,255}))"
        ),
    ),
    # those who rent models, and who store and trace what goes through them
    _issued("service-key", "xai- gsk_ pplx- nvapi- hvs. hvb. hvr. fw_ jina_ rpa_", SAFE + "{30,2048}"),
    _issued("service-key", "r8_", WORD + "{30,64}"),
    _issued("service-key", "tvly- pcsk_ lsv2_pt_ lsv2_sk_ ls__", SAFE + "{28,255}"),
    _issued("wandb-key", "wandb_v1_", SAFE + "{20,255}"),
    _issued(
        "service-key",
        "npm_ dckr_pat_ dckr_oat_ pypi-AgEIcHlwaS5vcmc pypi-AgENdGVzdC5weXBp",
        SAFE + "{20,255}",
    ),
    _issued("service-key", "dapi", r"[0-9a-f]{32}(?:-\d)?(?![A-Za-z0-9])"),
    _issued("service-key", "dop_v1_ doo_v1_ dor_v1_ sntryu_", "[0-9a-f]{64}"),
    _issued("service-key", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", r"[A-Za-z0-9_.-]{40,90}"),
    _issued("service-key", "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_ whsec_", "[A-Za-z0-9+/]{10,255}"),
    _issued("service-key", "SG.", r"[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{30,64}"),
    _issued("service-key", "sntrys_ ops_ey glc_ey fm1a_ fm1r_ fm2_", "[A-Za-z0-9+/_=-]{60,4096}"),
    _issued("service-key", "glsa_", "[A-Za-z0-9]{32}_[0-9A-Fa-f]{8}"),
    _issued("service-key", "shpat_ shpca_ shppa_ shpss_", "[0-9A-Fa-f]{32}"),
    _issued("service-key", "tskey-", "[A-Za-z0-9-]{16,255}"),
    _issued("service-key", "SWMTKN-1-", "[a-z0-9]{40,60}-[a-z0-9]{20,30}"),
    _issued("service-key", "AGE-SECRET-KEY-1", "[A-Z0-9]{58}", I),
    _issued("service-key", "ATATT3 ATCTT3 ATBB", "[A-Za-z0-9_=-]{28,300}"),
    _issued("service-key", "NRAK- NRII- NRJS- NRRA-", "[A-Za-z0-9-]{19,42}"),
    _issued("service-key", "lin_api_ lin_oauth_ figd_ nfp_ rdme_ EZAK EZTK sgp_", SAFE + "{38,255}"),
    _issued("service-key", "ntn_", "[0-9]{11}[A-Za-z0-9]{35}"),
    _issued("service-key", "sbp_", "(?:v[0-9]_)?[0-9a-f]{40}"),
    _issued("service-key", "rubygems_", "[0-9a-f]{48}"),
    _issued("service-key", "pul-", "[0-9a-f]{40}"),
    _issued("service-key", "pnu_ pnb_", WORD + "{36}"),
    _issued("service-key", "PMAK-", "[0-9a-f]{24}-[0-9a-f]{34}"),
    _issued("service-key", "LTAI AKID", WORD + "{12,36}(?![A-Za-z0-9_-])"),
    _issued("service-key", "fo1_", SAFE + "{43}"),
    _issued("service-key", "pscale_tkn_ pscale_pw_ pscale_oauth_", r"[\w=.-]{32,64}"),
    _issued("service-key", "dt0c01. dt0s16.", r"[A-Z0-9]{24}\.[A-Z0-9]{64}", I),
    _issued("service-key", "CCIPAT_ CCIPRJ_", "[A-Za-z0-9_]{40,80}"),
    _issued("service-key", "sq0atp- sq0csp- EAAAE duffel_live_ duffel_test_ xkeysib-", SAFE + "{22,255}"),
    _issued("service-key", "sha256~", SAFE + "{43}"),  # OpenShift's
    _issued("service-key", "AKCp cmVmd", WORD + "{59,69}(?![A-Za-z0-9])"),
    _issued("service-key", "HRKU-AA pat-na1- pat-eu1- tk-us- fio-u-", SAFE + "{32,64}"),
    rule("service-key", ".atlasv1.", r"(?<![A-Za-z0-9])(?P<s>[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,70})"),
    rule("service-key", "q~", r"(?<![A-Za-z0-9_~.-])(?P<s>[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34})"),  # Entra ID's
    rule(
        "bot-token",
        ":aa",
        r"(?<![A-Za-z0-9:])(?:bot)?(?P<s>\d{8,10}:AA[A-Za-z0-9_-]{32,35})(?![A-Za-z0-9_-])",
    ),
    _issued("slack-token", "xoxa- xoxb- xoxe- xoxe. xoxo- xoxp- xoxr- xoxs- xapp-", "[A-Za-z0-9.-]{10,255}"),
    rule(
        "slack-webhook",
        "hooks.slack.com",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<s>[A-Za-z0-9_/+-]{20,255})",
    ),
    rule("discord-webhook", "/api/webhooks/", r"/api/webhooks/\d{6,24}/(?P<s>[A-Za-z0-9_-]{20,255})"),
    rule(
        "teams-webhook",
        "webhook.office.com",
        r"webhook\.office\.com/webhookb?2?/(?P<s>[A-Za-z0-9@/-]{40,255})",
    ),
    rule(
        "jwt",
        "eyj",
        START + r"(?P<s>eyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,8192}(?:\.[A-Za-z0-9_-]{0,4096}){0,3})",
    ),
)

# ── in URLs and headers ─────────────────────────────────────────────────────────────────────────────────────
URLS: tuple[Rule, ...] = (
    rule(
        "url-password",
        "://",
        r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"<>]{0,128}:(?P<s>[^\s/'\"<>]{1,256})@",
        I,
    ),
    rule(
        "url-password",
        "://",
        r"\b[a-z][a-z0-9+.-]{1,20}://(?P<s>(?=[^\s/:@]{0,255}\d)[A-Za-z0-9_-]{20,255})@",
        I,
    ),
    rule(
        "signed-url",
        "sig= signature= x-amz- x-goog- access_token= api_key= apikey=",
        (
            r"[?&;](?:sig|signature|x-(?:amz|goog)-(?:signature|credential|security-token)|access_token"
            r"|api_?key)=(?P<s>[^&\s'\"<>\\]{6,4096})"
        ),
        I,
    ),
    rule(
        "signed-url",
        "x-amz- x-goog-",
        rf"x-(?:amz|goog)-(?:signature|credential|security-token){IS}(?P<s>[^&\s'\"<>\\,;]{{16,4096}})",
        I,
    ),
    # outside of a query `sig=11` is a signal, and what AWS signs has 64 hex digits
    rule("signed-url", "sig=", r"(?<![A-Za-z0-9_])sig=(?P<s>[A-Za-z0-9%+/_-]{40,512}={0,2})"),
    rule("signed-url", "aws-hmac", r"AWS4-HMAC-SHA256[^\n]{0,400}?Signature=(?P<s>[0-9a-f]{64})"),
    rule("url-token", "token=", r"[?&]token=(?P<s>[A-Za-z0-9_.~%+/-]{8,4096}={0,2})", I),
)
HEADERS: tuple[Rule, ...] = (
    rule("bearer", "bearer", START + r"bearer\s{1,4}(?P<s>[A-Za-z0-9._~+/=-]{12,4096})", I),
    rule(
        "authorization",
        "authorization",
        rf"authorization{IS}(?:basic|token|digest|apikey|key)\s{{1,4}}(?P<s>[^\s'\",;\\}}]{{6,4096}})",
        I,
    ),
    rule(
        "authorization",
        "authorization",
        rf"authorization{IS}(?P<s>(?=[^\s'\"]{{0,4096}}\d)[^\s'\",;\\}}\[]{{12,4096}})",
        I,
    ),
    rule(
        "api-key-header",
        "api-key private-token x-auth-token job-token x-vault-token subscription-key x-registry-auth",
        (
            rf"(?:(?<![a-z])api-key|private-token|x-auth-token|job-token|x-vault-token|subscription-key"
            rf"|x-registry-(?:auth|config)){IS}(?P<s>[^\s'\",;\\}}\[]{{8,8192}})"
        ),
        I,
    ),
    # a cookie is a list of pairs, any of which may open a session
    rule(
        "cookie",
        "cookie",
        rf"(?<![a-z])set-cookie2?{IS}[^\s=;'\"\\]{{1,128}}=(?P<s>[^\s;'\"\\]{{4,8192}})",
        I,
    ),
    rule(
        "cookie",
        "cookie",
        rf"(?<![a-z-])cookie{IS}(?P<s>[^\s=;'\"\\\[]{{1,128}}=[^;'\"\\\n]{{1,8192}}(?:;[^'\"\\\n]{{1,8192}})?)",
        I,
    ),
    rule("cookie", "cookie", rf"(?<![a-z-])cookies{IS}\{{(?P<s>[^}}\n]{{6,8192}})\}}", I),
    rule(
        "cookie",
        "curl",
        r"curl\b[^\n]{0,200}? (?:-b|--cookie)[ =]['\"]?(?P<s>[^\s'\"]{1,64}=[^\n'\"]{1,4096})",
    ),
)
