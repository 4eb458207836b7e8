"""An incident, or a comparison of two, with pseudonyms in place of names, and the key to them in a file.

{"host-1": "node-0112", "user-1": "alice", "address-1": "10.3.0.17"}
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from postmortem.privacy.anonymize import Anonymizer, anonymized, learn
from postmortem.report.json import dump
from postmortem.system import output


def put(incident: Any, key: Path | None = None) -> Any:
    """Anonymise; who is who goes into `key`, which only its owner can read."""
    names = Anonymizer()
    hidden = anonymized(incident, names)
    if hidden.document["fingerprint"]:  # its second part is a hash of a host's name, which can be guessed
        hidden.document["fingerprint"] = hidden.document["fingerprint"].partition("-")[0]
    _keep(names, key)
    return hidden


def put_in_comparison(found: Any, incidents: Iterable[Any], key: Path | None = None) -> Any:
    """Anonymise what differs between these incidents: a host of both has one pseudonym."""
    names = Anonymizer()
    for incident in incidents:
        learn(incident, names)
    names.learn(found)
    hidden = names.document(found)
    for side in (hidden["a"], hidden["b"]):
        side["fingerprint"] = side["fingerprint"] and side["fingerprint"].partition("-")[0]
    _keep(names, key)
    return hidden


def _keep(names: Anonymizer, key: Path | None) -> None:
    if key is not None:
        output.write_file(key, dump(names.key, indent=1, order=False) + "\n", private=True)
