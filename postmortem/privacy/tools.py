"""Where the syntax of a tool, a file or a call puts a secret that no name is assigned to.

sshpass -p …    docker login -p …    machine X login Y password …    HTTPBasicAuth("alice", "…")
"""

from __future__ import annotations

import re

from postmortem.privacy.rules import HEADERS, IS, ISSUED, URLS, Rule, rule

I = re.IGNORECASE  # noqa: E741
GAP = r"[ \t'\",]{1,6}"  # between arguments, also as a list of them is printed
SHOWN = r"(?![$<*]|\[REDACTED)(?P<s>[^\s'\"]{2,512})"  # no variable and no placeholder
LOGIN = r"(?:docker|podman|nerdctl|buildah|skopeo|helm|oras|crane)\b[^\n|]{0,40}?\blogin\b"
ECHOED = r"(?![$<*]|\[REDACTED)(?P<s>[^\s'\"|]{2,512})['\"]?[ \t]*\|"
PIPED = r"\becho(?: -[a-z]+)?[ \t]+['\"]?"


def _argument(literals: str, command: str, flag: str, flags: int = 0) -> Rule:
    """A password that a command takes behind a flag."""
    return rule("password", literals, rf"{command}[^\n]{{0,300}}?{GAP}{flag}{SHOWN}", flags)


COMMANDS: tuple[Rule, ...] = (
    rule("password", "sshpass", rf"sshpass(?:{GAP}-[ev])?{GAP}-p(?:{GAP})?{SHOWN}"),
    rule("password", "login", rf"{LOGIN}[^\n|]{{0,200}}?{GAP}(?:-p|--password)(?:{GAP}|=){SHOWN}"),
    _argument("curl", r"curl\b", rf"(?:-u|--user|--proxy-user)(?:{GAP}|=)['\"]?[^\s:'\"$]{{1,64}}:"),
    _argument("mysql mariadb", r"(?:mysql|mariadb)[a-z-]{0,12}\b", r"-p(?=[^\s'\"]{4})(?!ort\b|rot)"),
    _argument("redis-cli", r"redis-cli\b", rf"(?:-a|--pass)(?:{GAP}|=)"),
    _argument("ldap", r"\bldap[a-z]{3,8}\b", rf"-w{GAP}"),
    _argument("ipmitool", r"ipmitool\b", rf"-P{GAP}"),
    _argument("zip", r"\b(?:un)?zip\b", rf"-P{GAP}"),
    _argument("az+login", r"\baz login\b", rf"(?:-p|--password){GAP}"),
    _argument("openssl", r"\bopenssl\b", rf"-(?:k|K){GAP}"),
    # the shape that is looked at has no digits, so 7z is a z
    Rule(
        "password",
        ("z a ", "z x ", "z e ", "z t "),
        rf"\b7z[a-z]? [a-z] [^\n]{{0,200}}?-p{SHOWN}",
    ),
    rule(
        "password",
        "htpasswd",
        rf"\bhtpasswd\b(?:{GAP}-[a-zA-Z]{{1,6}})*{GAP}-[a-zA-Z]*b[a-zA-Z]*{GAP}\S+{GAP}\S+{GAP}{SHOWN}",
    ),
    rule(
        "password",
        "--password-stdin",
        rf"{PIPED}{ECHOED}[^\n]{{0,200}}?-password-stdin",
    ),
    rule(
        "password",
        "sudo kinit cryptsetup gpg passwd",
        rf"{PIPED}{ECHOED}[ \t]*(?:sudo (?:-\w+ ){{0,3}}-\w*S|(?:kinit|cryptsetup|gpg|passwd)\b)",
    ),
    rule(
        "password",
        "chpasswd",
        rf"{PIPED}[\w.-]{{1,40}}:{ECHOED}[^\n]{{0,20}}chpasswd",
    ),
    rule("password", "pass:", rf"-pass(?:in|out)?{GAP}pass:{SHOWN}"),
    rule("secret", "alias+set", rf"\bmc(?:li)? alias set{GAP}\S+{GAP}\S+{GAP}\S+{GAP}{SHOWN}"),
    rule("secret", "add-mask", r"::add-mask::(?P<s>[^\s'\"]{3,4096})"),
    rule(
        "token",
        "kubeadm bootstrap-token",
        rf"(?:kubeadm\b[^\n]{{0,200}}?--token(?:{GAP}|=)|bootstrap-token{IS})(?P<s>[a-z0-9]{{6}}\.[a-z0-9]{{16}})",
    ),
)
FILES: tuple[Rule, ...] = (
    rule(
        "aws-secret",
        "secret_access_key secretaccesskey session_token sessiontoken security-token",
        (
            rf"(?:secret_?access_?key|(?:aws_?|x-amz-)?(?:session|security)"
            rf"[_-]?token)(?:{IS}|[ \t]+)(?P<s>[A-Za-z0-9/+=]{{30,4096}})"
        ),
        I,
    ),
    # 40 hex digits are a git commit, unless Weights & Biases is spoken of in the same breath
    rule(
        "wandb-key",
        "wandb",
        (
            r"(?:wandb|WANDB)[^\n]{0,60}?(?:key|KEY|login|password|netrc)(?:[^\n0-9a-f]{1,12}"
            r"|[^\n]{1,60}?(?:netrc|file|path)[^\n0-9a-f]{1,40}?)(?P<s>[0-9a-f]{40})(?![0-9a-f])"
        ),
    ),
    rule(
        "azure-key",
        "accountkey= sharedaccess",
        r"(?:AccountKey|SharedAccessKey|SharedAccessSignature)=(?P<s>[^;\s'\"]{16,512})",
        I,
    ),
    rule("netrc", "password", rf"\b(?:machine|default)[ \t]+[^\n]{{1,300}}?\bpassword[ \t]+{SHOWN}"),
    rule(
        "netrc",
        "password",
        rf"\b(?:login|account)[ \t]+\S+[ \t]+(?:account[ \t]+\S+[ \t]+)?password[ \t]+(?![a-z]+\b){SHOWN}",
    ),
    rule(
        "netrc",
        "machine",
        (
            r"(?m)^[^\n]{0,80}\bmachine[ \t]+\S+[ \t]*\n(?:[^\n]{0,80}\b(?:login|account)[ \t]+\S+[ \t]*\n)?"
            r"[^\n]{0,80}\bpassword[ \t]+(?P<s>\S{2,256})[ \t]*$"
        ),
    ),
    rule(
        "password",
        "requirepass masterauth",
        rf"\b(?:requirepass|masterauth)['\"]?[ \t=:]{{1,4}}['\"]?{SHOWN}",
    ),
    rule("password", "bindpw rootpw", rf"\b(?:bindpw|rootpw)['\"]?[ \t=:]{{1,4}}['\"]?{SHOWN}"),
    # npm's settings, and what docker keeps of a login
    rule(
        "token",
        "_authtoken _auth _password",
        rf"(?<![A-Za-z0-9])_(?:authToken|auth|password)['\"]?[ \t=:]{{1,4}}['\"]?{SHOWN}",
    ),
    rule("token", "identitytoken", rf"identitytoken{IS}(?P<s>[A-Za-z0-9._~+/=-]{{16,4096}})", I),
    rule("client-key", "client-key-data", rf"client-key-data{IS}(?P<s>[A-Za-z0-9+/=]{{16,8192}})", I),
    Rule(
        "ceph-key",
        ("key = aq", "key: aq", "key=aq", 'key":"aq', 'key": "aq'),
        r"\bkey['\"]?[ \t]*[=:][ \t]*['\"]?(?P<s>AQ[A-Za-z0-9+/]{36,38}==)",
    ),
    # Kaggle's file has a name and a key, and no more
    rule(
        "kaggle-key",
        "username",
        rf"username{IS}[^\s'\"]{{1,64}}['\"\\]{{1,2}},\s{{0,4}}['\"\\]{{1,2}}key{IS}(?P<s>[0-9a-f]{{32}})",
    ),
    rule(
        "password",
        "password> passwd> pwd> secret> token> apikey>",
        r"<(?:[\w.-]{1,40}:)?[\w.-]{0,40}?(?:password|passwd|pwd|secret|token|apikey)>(?P<s>[^<\s]{3,4096})</",
        I,
    ),
    rule(
        "password",
        "<value> value= '> \">",
        (
            r"(?:password|secret(?:[._-]?(?:access[._-]?)?key)?|passphrase|token)(?:</name>\s{0,8}<value>"
            r"|['\"]\s{1,4}value=['\"]|['\"]>)(?P<s>[^<\"'\s]{3,4096})"
        ),
        I,
    ),
)
CALLS: tuple[Rule, ...] = (
    # a name and a password as two arguments, as requests, smtplib and clients of hubs take them
    rule(
        "password",
        "auth=( auth( .login(",
        (
            r"(?:\bauth=\(|(?:Basic|Digest|Proxy)Auth\(|\.login\()[ru]?['\"][^'\"\n]{1,64}['\"],[ ]{0,4}"
            r"['\"](?P<s>[^'\"\n]{3,512})['\"]"
        ),
        I,
    ),
    rule(
        "token",
        "token( password( key(",
        r"(?:save|set)_?(?:token|password|api_?key)\(['\"](?P<s>[^'\"\n]{6,4096})['\"]",
        I,
    ),
)
# What people and their scripts say in words. The value has to be no word then.
SAID: tuple[Rule, ...] = (
    Rule(
        "password",
        ("password ", "passphrase "),
        (
            r"(?i:\bpass(?:word|phrase))(?:(?:[ \t]+[\w.@-]{1,40}){0,7}?(?:[ \t]is|:)|)[ \t]+"
            r"['\"]?(?P<s>(?=[^\s'\"]{0,512}[0-9!#$%^*+~&])[^\s'\"]{6,512})"
        ),
        odd=6,
    ),
    Rule(
        "token",
        ("token ", "api key ", "access key ", "secret key ", "apikey "),
        (
            r"(?i:\b(?:token|(?:api|access|secret)[ _-]?key))"
            r"(?:(?:[ \t]+[\w.@-]{1,40}){0,7}?(?:[ \t]is|:)|)[ \t]+"
            r"['\"]?(?P<s>(?=[A-Za-z_.+/=-]{0,512}[0-9])[A-Za-z0-9_.+/=-]{16,512})(?![^\s'\".,;)])"
        ),
        odd=16,
    ),
    # setenv, fish, Dockerfiles; Spark's and Java's properties; headers of many services
    Rule(
        "secret",
        ("setenv ", "set -", "env ", "arg "),
        (
            r"(?:\bsetenv|\bset -[a-zA-Z]{1,3}|\bENV|\bARG)[ \t]+[A-Za-z_]{0,60}"
            r"(?:KEY|TOKEN|SECRET|PASS|PASSWORD|PWD"
            r"|AUTH|CREDENTIALS?)[ \t]+['\"]?(?P<s>[^\s'\"]{6,4096})"
        ),
        odd=6,
    ),
    Rule(
        "password",
        (".password ", ".secret ", ".key ", ".token "),
        (
            r"(?i:\.(?:password|secret|secret\.key|access\.key|token))[ \t]+"
            r"(?P<s>[^\s'\"=]{6,512})[ \t]*(?:\n|$)"
        ),
        odd=6,
    ),
    rule(
        "api-key-header",
        "-key -token -secret",
        rf"(?<![\w-])x-[a-z-]{{2,40}}-(?:key|token|secret){IS}(?P<s>[^\s'\",;\\}}]{{12,4096}})",
        I,
    ),
)
# A user and a password side by side, for whatever command or list.
PAIRS: tuple[Rule, ...] = (
    Rule(
        "password",
        ("-u", "--user"),
        (rf"(?<![^\s'\"])(?:-u|-U|--user(?:name)?)(?:{GAP}|=)[\w.@-]{{1,64}}{GAP}(?:-p|-P)(?:{GAP})?{SHOWN}"),
        odd=6,
    ),
    Rule(
        "password",
        ("--user",),
        rf"(?<![^\s'\"])--user(?:name)?(?:{GAP}|=)['\"]?[\w.-]{{1,64}}[:%]{SHOWN}",
        odd=6,
    ),
    Rule("password", ("-u",), rf"(?<![^\s'\"])-U{GAP}[\w.-]{{1,64}}%{SHOWN}", odd=6),
    Rule(
        "password",
        ("@",),
        (r"(?<![\w/:@.-])[A-Za-z][\w.-]{0,31}:(?P<s>[^\s/@:'\"<>=,]{6,128})@(?!sha256:)[A-Za-z0-9][\w.-]{0,80}"),
        odd=6,
    ),
    Rule(
        "secret",
        ("key', ", 'key", ', "token', ", 'token", ', "secret', ", 'secret", ', "password', ", 'password", '),
        (r"(?i:(?:key|token|secret|password))['\"],[ ]{1,4}(?:value=)?b?['\"](?P<s>[^'\"\s]{6,4096})['\"]"),
        odd=12,
    ),
    rule(
        "secret",
        "secretstr( secretbytes(",
        r"Secret(?:Str|Bytes)\(b?['\"](?!\*+['\"])(?P<s>[^'\"\n]{1,4096})['\"]\)",
    ),
    Rule("password", ("psk",), rf"(?<![A-Za-z0-9])(?:psk|PSK){IS}(?P<s>[^\s'\"]{{6,256}})", odd=6),
)
PROVIDERS: tuple[Rule, ...] = (*ISSUED, *COMMANDS, *FILES, *CALLS, *PAIRS, *SAID, *HEADERS, *URLS)
