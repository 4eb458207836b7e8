"""Hosts, users, addresses and paths out of an incident:
each replaced by a pseudonym, the same one everywhere.

    node-0112/rank3.log:81  alice@node-0112: [Errno 28] '/home/alice/exp7/ckpt.pt', peer 10.3.0.17:29500
    -> host-1/rank3.log:81  user-1@host-1: [Errno 28] '/home/user-1/dir-1/file-1.pt', peer address-1:29500

Pseudonyms are numbered by first appearance, sources in path order first, so the same input gives the same
bytes. Names are learnt where their place says what they are (the document's fields, home folders, paths, mail
addresses, NCCL and syslog prefixes), then replaced wherever they stand, in any case. What everybody's
machine has (`/usr/lib`, `site-packages/torch/...`, `attempt_0`, `stderr.log`) stays, and so do loopback
addresses: they tell nothing about a place and much about a failure. Anonymising comes after redaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from ipaddress import IPv6Address, ip_address
from typing import Any

from postmortem.privacy.names import (
    CODE,
    CODE_FILE,
    COMMON,
    CORE,
    DOMAIN,
    GUID,
    HANDBOOKS,
    HOST_AT,
    HOST_FIELDS,
    KEPT_FIELDS,
    LOG_NAME,
    MAC,
    MAIL,
    NAME_END,
    NAME_START,
    NOT_NAMES,
    PACKAGES,
    PATH,
    PATH_FIELDS,
    PROJECTS,
    PUBLIC,
    PUBLIC_DOMAINS,
    PUBLIC_FORM,
    SOURCE_NAME,
    SUFFIX,
    URL,
    USER_AT,
    V4,
    V6,
    WORK_AT,
)

BARE = 4  # letters of a folder's name that is looked for outside of paths
_LABEL = re.compile(r"(?i)(?:default|rank)[_-]?\d+")  # torchrun's, in front of a rank's line
_PSEUDONYM = re.compile(r"(?:host|user|dir|file|name|domain|address)-\d+")


class Anonymiser:
    """Learns names and replaces them; one for each incident."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._words: dict[str, str] = {}  # by `_key`
        self._whole: set[str] = set()  # of these, words that stand in everybody's logs too
        self._everybodys: set[str] = set()  # parts of paths in public code: they are no names
        self._known: re.Pattern[str] | None = None

    @property
    def key(self) -> dict[str, str]:
        """Pseudonyms and what they stand for, for the owner alone."""
        return {name: said for (_, said), name in self._names.items()}

    # ── learning ────────────────────────────────────────────────────────────────────────────────────────────

    def learn(self, value: object, field: str = "") -> None:
        """Take the names of a JSON-like value:
        hosts and paths from their fields, users and hosts from its texts."""
        if isinstance(value, str):
            if field in HOST_FIELDS:
                self._host(value)
            elif field not in KEPT_FIELDS:
                self.learn_text(value)
        elif isinstance(value, Mapping):
            for key, item in value.items():
                self.learn(item, str(key))
        elif isinstance(value, (list, tuple)):
            for item in value:
                self.learn(item, field)

    def learn_text(self, text: str) -> None:
        for pattern in USER_AT:
            for match in pattern.finditer(text):
                self._user(match["s"].rstrip("."))
        for match in MAIL.finditer(text) if "@" in text else ():
            self._domain(match["s"])
        for pattern in HOST_AT:
            for match in pattern.finditer(text):
                if not SOURCE_NAME.search(match["s"]):
                    self._host(match["s"].rstrip("."))
        for match in WORK_AT.finditer(text):
            work = match["s"].rstrip(".")
            if _telling(work):
                self._word(work, self._name("name", work))

    def learn_paths(self, paths: Iterable[str]) -> None:
        """Number the parts of the sources' paths in their order;
        a path that no text shows to be one becomes a word."""
        for path in paths:
            found = self.path(path)
            if path and self.text(path) != found:
                self._word(path, found)

    def _host(self, name: str) -> None:
        short, _, domain = name.partition(".")
        if _LABEL.fullmatch(short):
            return
        if len(short) > 1 and short.lower() not in NOT_NAMES and not _address(name) and not short.isdecimal():
            self._word(short, self._name("host", short.lower()))
            self._domain(domain)

    def _domain(self, domain: str) -> None:
        """`gpu.cluster.acme.com`, and `acme.com` by itself."""
        labels = domain.strip(".").lower().split(".")
        for at in range(len(labels) - 1):
            part = ".".join(labels[at:])
            if part in PUBLIC_DOMAINS or SOURCE_NAME.search(part) or labels[-1].isdecimal():
                return
            self._word(part, self._name("domain", part))

    def _user(self, name: str) -> None:
        if len(name) > 1 and name.lower() not in NOT_NAMES and _key(name) not in self._words:
            self._word(name, self._name("user", name))

    def _word(self, word: str, name: str) -> None:
        key = _key(word)
        if key not in self._words:
            self._words[key] = name
            if key in COMMON or key in PUBLIC or len(key) < 3:
                self._whole.add(key)
            self._known = None

    def _name(self, kind: str, key: str) -> str:
        if (kind, key) not in self._names:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._names[kind, key] = f"{kind}-{self._counts[kind]}"
        return self._names[kind, key]

    # ── replacing ───────────────────────────────────────────────────────────────────────────────────────────

    def text(self, text: str) -> str:
        """Return a text without names. What a path says is replaced part by part, addresses whole."""
        if "://" in text:
            text = URL.sub(self._url, text)
        if "/" in text:
            text = PATH.sub(lambda m: self.path(m[0]), text)
        if ":" in text or "-" in text:
            text = V6.sub(self._ip6, MAC.sub(self._mac, text))
        text = V4.sub(self._ip, text)
        text = self._known_words(text)
        return CODE_FILE.sub(lambda m: self._part(m["s"], last=True), text) if "." in text else text

    def path(self, path: str) -> str:
        """`/home/alice/exp7/ckpt.pt` -> `/home/user-1/dir-1/file-1.pt`."""
        parts = re.split(r"(!?/)", path)
        out: list[str] = []
        public = False
        for place, part in enumerate(parts):
            public = public or _projects(parts, place)
            if public and not place % 2 and _key(part) not in self._everybodys:
                self._everybodys.add(_key(part))
                self._known = None
            out.append(part if place % 2 or public or not part else self._part(part, last=place == len(parts) - 1))
        return "".join(out)

    def _part(self, part: str, last: bool) -> str:
        if _key(part) in self._words:
            return self._words[_key(part)]
        if _public(part) or _PSEUDONYM.fullmatch(part):
            return part
        found = V4.sub(self._ip, self._known_words(part))
        if found != part and _public(_PSEUDONYM.sub("", found)):
            return found
        suffix = SUFFIX.search(part) if last else None
        stem = part[: suffix.start()] if suffix else part
        name = self._name("file" if suffix else "dir", part)
        if _telling(stem) and not _PSEUDONYM.search(found):
            self._word(stem, name)
        return name + (suffix[0] if suffix else "")

    def _known_words(self, text: str) -> str:
        if not self._words:
            return text
        if self._known is None:
            self._known = self._pattern()
        return self._known.sub(self._replaced, text) if self._known.pattern else text

    def _pattern(self) -> re.Pattern[str]:
        """All that is known, longest first. A host's domain goes with it; a file's suffix does not."""
        longest = sorted(
            self._words.keys() - self._everybodys,
            key=lambda word: (not self._words[word].startswith("host-"), -len(word), word),
        )
        names = [_form(word) for word in longest if word not in self._whole]
        whole = [_form(word) for word in longest if word in self._whole]
        forms = []
        if names:
            forms.append(rf"{NAME_START}(?P<name>{'|'.join(names)}){NAME_END}{DOMAIN}")
        if whole:
            tail = DOMAIN.replace("domain", "domain2")
            forms.append(rf"(?<![A-Za-z0-9_.-])(?P<whole>{'|'.join(whole)}){tail}(?![A-Za-z0-9_])(?!-[A-Za-z0-9])")
        return re.compile(rf"(?i:{'|'.join(forms)})" if forms else "")

    def _replaced(self, match: re.Match[str]) -> str:
        said = match.groupdict()
        name = self._words[_key(said.get("name") or said.get("whole") or "")]
        domain = said.get("domain") or said.get("domain2") or ""
        return name if name.startswith("host-") else name + self._known_words(domain)

    def _url(self, match: re.Match[str]) -> str:
        if HANDBOOKS.match(match["host"] + match["rest"]):
            self._everybodys.update(map(_key, match["rest"].split("/")))
            return match[0]
        host, user = match["host"], match["user"] or ""
        if host.startswith("["):
            host = V6.sub(self._ip6, host)
        elif not (_key(host) in self._words or _address(host) or host.lower() in NOT_NAMES):
            said, host = host, self._name("address", host.lower())
            if _telling(said):
                self._word(said, host)
        return match["scheme"] + user + host + (match["port"] or "") + self.path(match["rest"])

    def _mac(self, match: re.Match[str]) -> str:
        return self._name("address", match[0].lower().replace("-", ":"))

    def _ip(self, match: re.Match[str]) -> str:
        return self._pseudonym(_address(match[0])) or match[0]

    def _ip6(self, match: re.Match[str]) -> str:
        """An address of eight groups may have a port for a ninth, a shorter one is cut where it is known."""
        said, device = match["ip"], match["device"] or ""
        behind = match[0][len(device) + len(said) :]
        head, _, port = said.rpartition(":")
        short = _address(head) if port.isdecimal() and len(port) > 1 and not head.endswith(":") else None
        if short is not None and (_address(said) is None or ("address", str(short)) in self._names):
            return f"{device}{self._pseudonym(short) or head}:{port}{behind}"
        if GUID.fullmatch(said):
            return self._name("address", said.lower()) + behind
        name = self._pseudonym(_address(said))
        return f"{device}{name}{'' if behind.startswith('%') else behind}" if name else match[0]

    def _pseudonym(self, found: Any) -> str:
        """Empty for what is no address, or everybody's."""
        if isinstance(found, IPv6Address):
            found = found.ipv4_mapped or found
        if found is None or found.is_loopback or found.is_unspecified:
            return ""
        if found.version == 6 and found.is_reserved:
            return ""  # `c10::add` is no address
        return self._name("address", str(found))

    def document(self, value: Any, field: str = "") -> Any:
        """Return a JSON-like value of the same shape without names."""
        if isinstance(value, str):
            if field in PATH_FIELDS:
                return self.path(value)
            return value if field in KEPT_FIELDS else self.text(value)
        if isinstance(value, Mapping):
            return {self._field(key): self.document(item, str(key)) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.document(item, field) for item in value]
        return value

    def _field(self, key: Any) -> Any:
        return self._known_words(key) if isinstance(key, str) and key not in KEPT_FIELDS else key


def _public(part: str) -> bool:
    bare = part.strip(".-_") if part.strip(".-_") else ""
    return bare.lower() in PUBLIC or not bare or bool(PUBLIC_FORM.fullmatch(part) or LOG_NAME.fullmatch(part))


def _key(word: str) -> str:
    """One name, however it is written: `Run-7` gives functions called `run_7`."""
    return word.lower().replace("-", "_")


def _form(key: str) -> str:
    return re.escape(key).replace("_", "[-_]")


def _projects(parts: list[str], place: int) -> bool:
    """Whether public code begins here: `datasets` is a project in `site-packages`, and a folder elsewhere."""
    part, above = parts[place], parts[place - 2] if place > 1 else ""
    if part in CORE or part not in PROJECTS:
        return part in CORE
    return above in PACKAGES or (place == 0 and parts[-1].endswith(CODE))


def _telling(name: str) -> bool:
    """Whether a name of a folder, a file or a bucket is looked for outside of paths too: it is no word of
    everybody's logs."""
    lower = name.lower()
    if lower in COMMON or lower in PUBLIC or lower in NOT_NAMES or PUBLIC_FORM.fullmatch(name):
        return False
    return len(name) >= BARE and sum(map(str.isalpha, name)) >= BARE - 1 and not _PSEUDONYM.fullmatch(name)


def _address(words: str) -> Any:
    try:
        found = ip_address(words)
    except ValueError:
        return None
    return None if found.version == 6 and words.endswith("::") else found


def anonymised(incident: Any, names: Anonymiser | None = None) -> Any:
    """Return the incident with pseudonyms in its document and in its timeline; `names` has their key then."""
    names = names or Anonymiser()
    learn(incident, names)
    timeline = incident.timeline
    cleaned = names.document(incident.document)
    if timeline is None:
        return replace(incident, document=cleaned)
    return replace(
        incident,
        document=cleaned,
        timeline=replace(timeline, events=tuple(map(_event(names), timeline.events))),
    )


def learn(incident: Any, names: Anonymiser) -> None:
    """Take the names of an incident's document and timeline."""
    document = incident.document
    events = () if incident.timeline is None else incident.timeline.events
    for source in document.get("sources") or []:
        names.learn(source)
    names.learn(document)
    for event in events:
        if event.host:
            names.learn(event.host, "host")
        names.learn_text(event.text)
    names.learn_paths(str(source.get("path") or "") for source in document.get("sources") or [])
    # once for the names that paths and URLs hold: they may stand bare in an earlier line
    names.document(document)
    for text in dict.fromkeys(_said(events)):
        names.text(text)


def _said(events: Iterable[Any]) -> Iterator[str]:
    for event in events:
        yield event.text


def _event(names: Anonymiser) -> Callable[[Any], Any]:
    paths: dict[str, str] = {}

    def clean(event: Any) -> Any:
        source = event.where.source
        paths.setdefault(source, names.path(source))
        where = event.where._replace(source=paths[source])
        host, run = (name and names.text(name) for name in (event.host, event.run))
        text = names.text(event.text)
        return event._replace(text=text, where=where, host=host, run=run, context=(), fields={})

    return clean


__all__ = ["Anonymiser", "anonymised", "learn"]
