"""Hosts, users, addresses and paths of an incident, each replaced by the same pseudonym everywhere.

    node-0112/rank3.log:81  alice@node-0112: [Errno 28] '/home/alice/exp7/ckpt.pt', peer 10.3.0.17:29500
    -> host-1/rank3.log:81  user-1@host-1: [Errno 28] '/home/user-1/dir-1/file-1.pt', peer address-1:29500

Pseudonyms are numbered by first appearance, sources in path order first, so the same input gives the same bytes. Names
are learned where their place identifies them (the document's fields, home folders, paths, mail addresses, NCCL and
syslog prefixes), then replaced in all texts, in any case. Names of every machine (`/usr/lib`,
`site-packages/torch/...`, `attempt_0`, `stderr.log`) remain, and so do loopback addresses: they identify no site and
matter for a failure. Redaction comes before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from ipaddress import IPv6Address, ip_address
from typing import Any

from postmortem.model.frame import renamed, used
from postmortem.system import forms

_ROWS = forms.rows("privacy/names")
_REGEXES = forms.regexes("privacy/names")
_PLACES = [(row["role"], _REGEXES[name]) for name, row in _ROWS.items() if "role" in row]
_WORDS = {name: frozenset(row["words"].split()) for name, row in _ROWS.items() if "words" in row}
_PUBLIC, _NOT_NAMES = _WORDS["public"], _WORDS["not-names"]
_COMMON = _WORDS["common"] | _WORDS["projects"]
_CODE = (".py", ".cpp", ".cc", ".cu", ".c", ".h", ".hpp", ".so", ".pyx")
_PATH, _V4, _V6 = (_REGEXES[name] for name in ("path", "v4", "v6"))
_PSEUDONYM, _PUBLIC_PART, _SOURCE_NAME = (_REGEXES[name] for name in ("pseudonym", "public-part", "source-name"))
# fields of the document that hold names, which are learned before any text is rewritten
HOST_FIELDS = {"host", "hosts", "peer", "master_addr"}
PATH_FIELDS = {"source", "path"}
VOCABULARY_FIELDS = _WORDS["vocabulary-fields"]
BARE = 4  # letters of a folder's name that is searched for outside of paths


class Anonymizer:
    """Learns names and replaces them; one for each incident."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._words: dict[str, str] = {}  # by `_key`
        self._whole: set[str] = set()  # of these, words that are in everyone's logs too
        self._everyones: set[str] = set()  # parts of paths in public code, which are no names
        self._known: re.Pattern[str] | None = None

    @property
    def key(self) -> dict[str, str]:
        """The name of each pseudonym, for the owner alone."""
        return {pseudonym: name for (_, name), pseudonym in self._names.items()}

    # ── learning ────────────────────────────────────────────────────────────────────────────────────────────────

    def learn(self, value: object, field: str = "") -> None:
        """Take the names of a JSON-like value: hosts from their fields, users and hosts from its texts."""
        if isinstance(value, str):
            if field in HOST_FIELDS:
                self._host(value)
            elif field not in VOCABULARY_FIELDS:
                self.learn_text(value)
        elif isinstance(value, Mapping):
            for key, item in value.items():
                self.learn(item, str(key))
        elif isinstance(value, list | tuple):
            for item in value:
                self.learn(item, field)

    def learn_text(self, text: str) -> None:
        """Take the names of a text."""
        for role, pattern in _PLACES:
            if role == "mail" and "@" not in text:
                continue
            for match in pattern.finditer(text):
                name = match["s"].rstrip(".")
                if role == "user":
                    if len(name) > 1 and name.lower() not in _NOT_NAMES and _key(name) not in self._words:
                        self._word(name, self._name("user", name))
                elif role == "mail":
                    self._domain(match["s"])
                elif role == "host" and not _SOURCE_NAME.search(match["s"]):
                    self._host(name)
                elif role == "work" and _distinctive(name):
                    self._word(name, self._name("name", name))

    def learn_paths(self, paths: Iterable[str]) -> None:
        """Number the parts of the sources' paths in order. A path that no text shows to be one becomes a word."""
        for path in paths:
            found = self.path(path)
            if path and self.text(path) != found:
                self._word(path, found)

    def _host(self, name: str) -> None:
        short, _, domain = name.partition(".")
        if _REGEXES["rank-label"].fullmatch(short):
            return
        if len(short) > 1 and short.lower() not in _NOT_NAMES and not _address(name) and not short.isdecimal():
            self._word(short, self._name("host", short.lower()))
            self._domain(domain)

    def _domain(self, domain: str) -> None:
        """Learn `gpu.cluster.acme.com`, and `acme.com` by itself."""
        labels = domain.strip(".").lower().split(".")
        for at in range(len(labels) - 1):
            part = ".".join(labels[at:])
            if part in _WORDS["public-domains"] or _SOURCE_NAME.search(part) or labels[-1].isdecimal():
                return
            self._word(part, self._name("domain", part))

    def _word(self, word: str, name: str) -> None:
        key = _key(word)
        if key not in self._words:
            self._words[key] = name
            if key in _COMMON or key in _PUBLIC or len(key) < 3:
                self._whole.add(key)
            self._known = None

    def _name(self, kind: str, key: str) -> str:
        if (kind, key) not in self._names:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._names[kind, key] = f"{kind}-{self._counts[kind]}"
        return self._names[kind, key]

    # ── replacing ───────────────────────────────────────────────────────────────────────────────────────────────

    def text(self, text: str) -> str:
        """Return a text without names: paths are replaced part by part, addresses whole."""
        if "://" in text:
            text = _REGEXES["url"].sub(self._url, text)
        if "/" in text:
            text = _PATH.sub(lambda m: self.path(m[0]), text)
        if ":" in text or "-" in text:
            text = _V6.sub(self._ip6, _REGEXES["mac"].sub(self._mac, text))
        text = self._known_words(_V4.sub(self._ip, text))
        return _REGEXES["code-file"].sub(lambda m: self._part(m["s"], last=True), text) if "." in text else text

    def path(self, path: str) -> str:
        """`/home/alice/exp7/ckpt.pt` -> `/home/user-1/dir-1/file-1.pt`."""
        parts = re.split("(!?/)", path)
        out: list[str] = []
        public = False
        for place, part in enumerate(parts):
            public = public or _is_project(parts, place)
            if public and not place % 2 and _key(part) not in self._everyones:
                self._everyones.add(_key(part))
                self._known = None
            out.append(part if place % 2 or public or not part else self._part(part, last=place == len(parts) - 1))
        return "".join(out)

    def _part(self, part: str, last: bool) -> str:
        if _key(part) in self._words:
            return self._words[_key(part)]
        if _is_public(part) or _PSEUDONYM.fullmatch(part):
            return part
        found = _V4.sub(self._ip, self._known_words(part))
        if found != part and _is_public(_PSEUDONYM.sub("", found)):
            return found
        suffix = _REGEXES["suffix"].search(part) if last else None
        stem = part[: suffix.start()] if suffix else part
        name = self._name("file" if suffix else "dir", part)
        if _distinctive(stem) and not _PSEUDONYM.search(found):
            self._word(stem, name)
        return name + (suffix[0] if suffix else "")

    def _known_words(self, text: str) -> str:
        if not self._words:
            return text
        if self._known is None:
            # a regex for all names, longest first. It includes a host's domain, but no suffix of a file.
            longest = sorted(
                self._words.keys() - self._everyones,
                key=lambda word: (not self._words[word].startswith("host-"), -len(word), word),
            )
            kinds = {
                "{names}": (_ROWS["known-name"], [word for word in longest if word not in self._whole]),
                "{words}": (_ROWS["known-word"], [word for word in longest if word in self._whole]),
            }
            found = [
                row["regex"].replace(place, "|".join(re.escape(word).replace("_", "[-_]") for word in words))
                for place, (row, words) in kinds.items()
                if words
            ]
            self._known = re.compile(f"(?i:{'|'.join(found)})" if found else "")
        return self._known.sub(self._replaced, text) if self._known.pattern else text

    def _replaced(self, match: re.Match[str]) -> str:
        groups = match.groupdict()
        name = self._words[_key(groups.get("name") or groups.get("word") or "")]
        domain = groups.get("domain") or groups.get("domain2") or ""
        return name if name.startswith("host-") else name + self._known_words(domain)

    def _url(self, match: re.Match[str]) -> str:
        if _REGEXES["handbook"].match(match["host"] + match["rest"]):
            self._everyones.update(map(_key, match["rest"].split("/")))
            return match[0]
        host, user = match["host"], match["user"] or ""
        if host.startswith("["):
            host = _V6.sub(self._ip6, host)
        elif not (_key(host) in self._words or _address(host) or host.lower() in _NOT_NAMES):
            host = self._name("address", host.lower())
            if _distinctive(match["host"]):
                self._word(match["host"], host)
        return match["scheme"] + user + host + (match["port"] or "") + self.path(match["rest"])

    def _mac(self, match: re.Match[str]) -> str:
        return self._name("address", match[0].lower().replace("-", ":"))

    def _ip(self, match: re.Match[str]) -> str:
        return self._pseudonym(_address(match[0])) or match[0]

    def _ip6(self, match: re.Match[str]) -> str:
        """An address of eight groups may have a port for a ninth, a shorter one is cut if the rest is known."""
        address, device = match["ip"], match["device"] or ""
        behind = match[0][len(device) + len(address) :]
        head, _, port = address.rpartition(":")
        short = _address(head) if port.isdecimal() and len(port) > 1 and not head.endswith(":") else None
        if short is not None and (_address(address) is None or ("address", str(short)) in self._names):
            return f"{device}{self._pseudonym(short) or head}:{port}{behind}"
        if _REGEXES["guid"].fullmatch(address):
            return self._name("address", address.lower()) + behind
        name = self._pseudonym(_address(address))
        return f"{device}{name}{'' if behind.startswith('%') else behind}" if name else match[0]

    def _pseudonym(self, found: Any) -> str:
        """Return a pseudonym; empty for no address, or one that every machine has."""
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
            return value if field in VOCABULARY_FIELDS else self.text(value)
        if isinstance(value, Mapping):
            return {self._field(key): self.document(item, str(key)) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.document(item, field) for item in value]
        return value

    def _field(self, key: Any) -> Any:
        return self._known_words(key) if isinstance(key, str) and key not in VOCABULARY_FIELDS else key


def _is_public(part: str) -> bool:
    bare = part.strip(".-_")
    return not bare or bare.lower() in _PUBLIC or _fits(part, "public-part") or _fits(part, "public-log")


def _fits(part: str, name: str) -> bool:
    return _REGEXES[name].fullmatch(part) is not None


def _key(word: str) -> str:
    """Return one key for all spellings of a name: `Run-7` gives functions called `run_7`."""
    return word.lower().replace("-", "_")


def _is_project(parts: list[str], place: int) -> bool:
    """Whether public code begins here: `datasets` is a project in `site-packages`, and a folder elsewhere."""
    part, above = parts[place], parts[place - 2] if place > 1 else ""
    if part in _WORDS["core"] or part not in _WORDS["projects"]:
        return part in _WORDS["core"]
    return above in _WORDS["packages"] or (place == 0 and parts[-1].endswith(_CODE))


def _distinctive(name: str) -> bool:
    """Whether a name of a folder, a file or a bucket is no word of everyone's logs: it is searched for outside of
    paths too."""
    lower = name.lower()
    if lower in _COMMON or lower in _PUBLIC or lower in _NOT_NAMES or _PUBLIC_PART.fullmatch(name):
        return False
    return len(name) >= BARE and sum(map(str.isalpha, name)) >= BARE - 1 and not _PSEUDONYM.fullmatch(name)


def _address(words: str) -> Any:
    try:
        found = ip_address(words)
    except ValueError:
        return None
    return None if found.version == 6 and words.endswith("::") else found


def anonymized(incident: Any, names: Anonymizer | None = None) -> Any:
    """Return the incident with pseudonyms in its document and its timeline. `names` has their key afterwards."""
    names = names or Anonymizer()
    learn(incident.document, names, incident.timeline)
    document = names.document(incident.document)
    if incident.timeline is None:
        return replace(incident, document=document)
    rows = incident.timeline.copy(deep=False)
    for name, hidden in (("text", names.text), ("source", names.path), ("host", names.text), ("run", names.text)):
        rows[name] = renamed(rows[name], map(hidden, rows[name].cat.categories))
    return replace(incident, document=document, timeline=rows)


def learn(document: Any, names: Anonymizer, timeline: Any = None) -> None:
    """Take the names of an incident's document and timeline."""
    hosts, texts = ([], []) if timeline is None else (used(timeline["host"]), used(timeline["text"]))
    sources = document.get("sources") or []
    for source in sources:
        names.learn(source)
    names.learn(document)
    for host in filter(None, hosts):
        names.learn(host, "host")
    for text in texts:
        names.learn_text(text)
    names.learn_paths(str(source.get("path") or "") for source in sources)
    # once for the names in paths and URLs, which may be alone in an earlier line
    names.document(document)
    for text in texts:
        names.text(text)
