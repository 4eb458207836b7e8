"""The words that a reader sees for the document's closed vocabularies."""

from __future__ import annotations

from postmortem.model import vocabulary

OUTCOMES = {name: name.capitalize() for name in ("incident", "recovered", "healthy", "undetermined")}
CATEGORIES = {name: name.replace("-", " ") for name in vocabulary.CATEGORIES} | {
    "host-oom": "host memory",
    "gpu-oom": "GPU memory",
    "gpu-hardware": "GPU hardware",
    "gpu-fault": "GPU fault",
    "python-exception": "Python exception",
    "ddp-usage": "DDP usage",
}
CONFIDENCE = {
    "established": (3, "a log line names the cause, and the logs prove who failed"),
    "supported": (2, "the evidence points here; no single line states both the failure and who failed"),
    "hypothesis": (1, "the best explanation of thin evidence"),
}
STATES = {
    "cause": "failed first",
    "silent": "fell silent before the failure was seen",
    "unknown": "not known from these logs",
    "victim": "failed because of the cause",
    "healthy": "no failure",
}
ACTIONS = {
    "fix-code": "Fix the code",
    "fix-config": "Change the configuration",
    "add-memory": "Add memory",
    "drain-host": "Drain the host",
    "replace-gpu": "Replace the GPU",
    "check-network": "Check the network",
    "check-storage": "Check the storage",
    "restart": "Restart",
    "resubmit": "Resubmit",
    "none": "Nothing to do",
}
