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


def hidden(incident: Any, key: Path | None = None) -> Any:
    """Return the incident without names, and write the key to a file that only its owner can read."""
    names = Anonymizer()
    found = anonymized(incident, names)
    _finish(names, key, found.document)
    return found


def hidden_comparison(found: Any, incidents: Iterable[Any], key: Path | None = None) -> Any:
    """Return the comparison of these incidents without names: a host of both has one pseudonym."""
    names = Anonymizer()
    for incident in incidents:
        learn(incident.document, names, incident.timeline)
    names.learn(found)
    comparison = names.document(found)
    _finish(names, key, comparison["a"], comparison["b"])
    return comparison


def _finish(names: Anonymizer, key: Path | None, *documents: Any) -> None:
    for document in documents:  # the second part of a fingerprint is a hash of a host's name, which can be guessed
        document["fingerprint"] = document["fingerprint"] and document["fingerprint"].partition("-")[0]
    if key is not None:
        output.write_file(key, dump(names.key, indent=1, order=False) + "\n", private=True)
